//! What the pure parts cost: quantities, charges, ledger events, decisions.

mod decisions;
mod edit;
mod pods;

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Map, Value, json};
use sluice_engine::{Amount, ChargeRules, Claim, Ledger, Quantity, Resource, pod_charge};

use crate::report::{Run, Table, median, rows, say, verdict};

/// A decision must not cost more than this many times as much with 100,000 waiting pods as with ten. Caches and
/// deeper trees make it a little dearer; a loop over pods would make it 10,000 times as dear.
const GROWTH_LIMIT: f64 = 5.0;

const EVENT: [(&str, &str); 5] = [
    ("waiting pods", "waiting"),
    ("different charges", "different_charges"),
    ("ns per event", "ns"),
    ("p99 ns", "p99_ns"),
    ("ns to queue a pod", "queue_ns"),
];
const SWEEP: [(&str, &str); 3] = [
    ("different charges", "different_charges"),
    ("p99 ns under the lock", "slice_p99_ns"),
    ("ns in all", "whole_ns"),
];
const EDIT: [(&str, &str); 4] = [
    ("edit", "edit"),
    ("p99 ns under the lock", "slice_p99_ns"),
    ("longest ns", "slice_max_ns"),
    ("ns in all", "whole_ns"),
];

/// How often things are repeated.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Measurements, of which the median counts.
    rounds: usize,
    /// Operations in one measurement.
    batch: usize,
}

impl Effort {
    const fn of(quick: bool) -> Self {
        if quick { Self { rounds: 51, batch: 1_000 } } else { Self { rounds: 301, batch: 2_000 } }
    }
}

/// Measures, prints, writes `engine.json`.
///
/// # Errors
/// When the file cannot be written or an input of the bench is wrong.
pub fn run(run: &Run) -> anyhow::Result<()> {
    let effort = Effort::of(run.quick);
    say("engine: quantities, charges, ledger");
    let mut table = Table::new("engine: pure operations (median)", &["operation", "ns"]);
    let quantities = quantities(effort);
    let charges = charges(effort)?;
    let (ledger, line_count) = ledger_event(effort)?;
    for (kind, figures) in [("parse", &quantities), ("charge of a pod:", &charges)] {
        for (name, ns) in figures {
            table.row([format!("{kind} {name}"), format!("{:.1}", ns.as_f64().unwrap_or(f64::NAN))]);
        }
    }
    table.row([format!("ledger event (apply or revert), {line_count} resources"), format!("{ledger:.1}")]);
    table.print();

    let decisions = decisions::measure(run.quick);
    rows(
        "engine: a pod ends, one of the waiting takes its room (median of single events)",
        &EVENT,
        &decisions,
    )?;
    let growth = decisions::growth(&decisions).unwrap_or(f64::NAN);
    let met = growth <= GROWTH_LIMIT;
    println!(
        "  100,000 waiting pods cost {growth:.2} × what 10 cost (at most {GROWTH_LIMIT}): {}",
        verdict(met)
    );
    let sweep = decisions::measure_sweep(run.quick);
    let title = "engine: a pod ends, none of the waiting fits, and all have to be looked at";
    rows(title, &SWEEP, &[&sweep])?;
    let edits = edit::measure(run.quick);
    let title = "engine: a quota over 10,000 running and 40,000 different waiting pods is edited";
    rows(title, &EDIT, &edits)?;
    let file = json!({
        "quantity_parse_ns": quantities,
        "pod_charge_ns": charges,
        "ledger_event_ns": ledger,
        "release_decision": decisions,
        "sweep": sweep,
        "edits": edits,
        "release_decision_growth_10_to_100k": growth,
        "growth_limit": GROWTH_LIMIT,
        "met": met,
    });
    run.write("engine", file)
}

fn quantities(effort: Effort) -> Map<String, Value> {
    let shapes = [
        "0",
        "1",
        "500m",
        "1.5",
        "2Gi",
        "1536Mi",
        "128974848",
        "1e3",
        "123456789.123456789Ki",
        "not-a-quantity",
    ];
    let mut figures = Map::new();
    for text in shapes {
        let ns = per_operation(effort, || {
            let _ = black_box(Quantity::parse(black_box(text)));
        });
        figures.insert(text.to_owned(), json!(ns));
    }
    let hostile = "9".repeat(1024 * 1024);
    let few = Effort { batch: 50, ..effort };
    let ns = per_operation(few, || {
        let _ = black_box(Quantity::parse(black_box(&hostile)));
    });
    figures.insert("1 MiB of digits (an error)".to_owned(), json!(ns));
    figures
}

fn charges(effort: Effort) -> anyhow::Result<Map<String, Value>> {
    let rules = ChargeRules::for_minor(36);
    let mut figures = Map::new();
    for (name, pod) in
        [("typical", pods::typical()?), ("sidecars", pods::sidecars()?), ("VM launcher", pods::launcher()?)]
    {
        let ns = per_operation(effort, || {
            black_box(pod_charge(black_box(&pod), rules, 1_770_000_000));
        });
        figures.insert(name.to_owned(), json!(ns));
    }
    Ok(figures)
}

/// One event: a charge is added and taken back. Halved, since each is one event of the ledger.
fn ledger_event(effort: Effort) -> anyhow::Result<(f64, usize)> {
    let charge = pod_charge(&pods::sidecars()?, ChargeRules::for_minor(36), 0);
    let keys = ["pods", "count/pods", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    let hard = keys.map(|key| (Resource::from_quota_key(key), Amount::from_nanos(1 << 90)));
    let mut ledger = Ledger::new(hard);
    let pair = per_operation(effort, || {
        ledger.apply(Claim::Counted, black_box(&charge));
        ledger.revert(Claim::Counted, black_box(&charge));
    });
    Ok((pair / 2.0, keys.len()))
}

/// Median over the rounds of the mean over one batch, in nanoseconds.
fn per_operation(effort: Effort, mut operation: impl FnMut()) -> f64 {
    for _ in 0..effort.batch {
        operation();
    }
    let mut rounds: Vec<f64> = (0..effort.rounds)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..effort.batch {
                operation();
            }
            #[allow(clippy::cast_precision_loss)]
            let operations = effort.batch as f64;
            begin.elapsed().as_secs_f64() * 1e9 / operations
        })
        .collect();
    median(&mut rounds)
}
