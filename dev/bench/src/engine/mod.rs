//! What the pure parts cost: quantities, charges, ledger events, decisions.

mod decisions;
mod edit;
mod pods;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};
use sluice_engine::{Amount, ChargeRules, Claim, Ledger, Quantity, Resource, pod_charge};

use crate::report::{self, Table, median, round, say, verdict};

/// A decision must not cost more than this many times as much with 100,000 waiting pods as with ten. Caches and
/// deeper trees make it a little dearer; a loop over pods would make it 10,000 times as dear.
const GROWTH_LIMIT: f64 = 5.0;

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
pub fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let effort = Effort::of(quick);
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

    let decisions = decisions::measure(quick);
    let growth = decisions::growth(&decisions);
    let met = growth.is_some_and(|growth| growth <= GROWTH_LIMIT);
    let mut table = Table::new(
        "engine: a pod ends, one of the waiting takes its room (median of single events)",
        &["waiting pods", "different charges", "ns per event", "p99 ns", "ns to queue a pod"],
    );
    for row in &decisions {
        table.row([
            row.waiting.to_string(),
            row.classes.to_string(),
            format!("{:.0}", row.event_ns),
            format!("{:.0}", row.event_p99_ns),
            format!("{:.0}", row.queue_ns),
        ]);
    }
    table.print();
    let growth = growth.unwrap_or(f64::NAN);
    println!(
        "  100,000 waiting pods cost {growth:.2} × what 10 cost (at most {GROWTH_LIMIT}): {}",
        verdict(met)
    );

    let sweep = decisions::measure_sweep(quick);
    let mut table = Table::new(
        "engine: a pod ends, none of the waiting fits, and all have to be looked at",
        &["different charges", "p99 µs under the lock", "ms in all"],
    );
    table.row(sweep.cells());
    table.print();

    let edits = edit::measure(quick)?;
    let mut table = Table::new(
        "engine: a quota over 10,000 running and 40,000 different waiting pods is edited",
        &["edit", "p99 µs under the lock", "longest µs", "ms in all"],
    );
    for edit in &edits {
        table.row(edit.cells());
    }
    table.print();

    let rows: Vec<Value> = decisions.iter().map(decisions::Row::json).collect();
    let file = json!({
        "machine": machine,
        "quick": quick,
        "quantity_parse_ns": quantities,
        "pod_charge_ns": charges,
        "ledger_event_ns": round(ledger, 1),
        "release_decision": rows,
        "sweep": sweep.json(),
        "edits": edits.iter().map(edit::Edit::json).collect::<Vec<_>>(),
        "release_decision_growth_10_to_100k": round(growth, 2),
        "growth_limit": GROWTH_LIMIT,
        "met": met,
    });
    report::write(out, "engine", &file)
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
        figures.insert(text.to_owned(), json!(round(ns, 1)));
    }
    let hostile = "9".repeat(1024 * 1024);
    let few = Effort { batch: 50, ..effort };
    let ns = per_operation(few, || {
        let _ = black_box(Quantity::parse(black_box(&hostile)));
    });
    figures.insert("1 MiB of digits (an error)".to_owned(), json!(round(ns, 1)));
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
        figures.insert(name.to_owned(), json!(round(ns, 1)));
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
