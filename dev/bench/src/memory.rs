//! 150,000 pods, 10,000 namespaces and as many quotas in the gate's state, fed through the decoding that the watch
//! uses: pages of 500 as the API server lists them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::api::ObjectList;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_controllers::gate::{GateConfig, Moment, State};
use sluice_engine::{ChargeRules, NamespacePattern};
use sluice_index::Targeting;
use sluice_index::{ArqWire, NamespaceWire, PodWire};

use crate::pod_json::{Facts, SHAPES, Stage, Template, shape};
use crate::report::{self, Table, ms, round, say, verdict};
use crate::{cluster_json, kernel};

const PODS: u64 = 150_000;
const NAMESPACES: u64 = 10_000;
/// Of so many pods one waits.
const GATED_ONE_IN: u64 = 10;
/// As in the watch.
const PAGE: u64 = 500;
const GOAL_MIB: f64 = 128.0;
const NOW: Moment = Moment { mono_ms: 1_000, unix_ms: 1_772_500_000_000 };

/// What the process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Resident, as the kernel counts it.
    pub(crate) rss_mib: f64,
    /// Given out by the allocator.
    pub(crate) allocated_mib: f64,
}

/// Measures, prints, writes `memory.json`.
///
/// # Errors
/// When the kernel or the allocator do not tell, or a made-up object cannot be decoded.
pub fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let template = Template::new();
    let empty = Held::read()?;
    let selector = kube::core::Expression::Exists(names::TARGET_LABEL.to_owned()).into();
    let targeting = Targeting::new(selector, [NamespacePattern::named(names::INSTALL_NAMESPACE)].into());
    let mut state = State::new(GateConfig::new(names::GATE, ChargeRules::for_minor(36)), targeting);

    say(&format!("memory: {NAMESPACES} namespaces and quotas, {PODS} pods"));
    feed_namespaces(&mut state)?;
    feed_quotas(&mut state)?;
    let quotas = Held::read()?;
    let first = feed_pods(&mut state, &template, 0)?;
    let listed = Held::read()?;
    let planning = Instant::now();
    state.lead(NOW);
    let actions = state.plan(NOW).len();
    let planning = planning.elapsed();
    let leading = Held::read()?;
    say("memory: the same list again, unchanged");
    let again = feed_pods(&mut state, &template, 0)?;
    let relisted = Held::read()?;
    say("memory: once more, every pod with another version");
    feed_pods(&mut state, &template, PODS)?;
    let churned = Held::read()?;
    let peak = kernel::memory_mib("self", "VmHWM")?;
    anyhow::ensure!(state.index().0.len() as u64 == PODS, "the index holds {} pods", state.index().0.len());

    let stages = [
        ("empty process", empty),
        ("10,000 namespaces and quotas", quotas),
        ("150,000 pods listed", listed),
        ("leading, first plan made", leading),
        ("listed again, unchanged", relisted),
        ("listed again, all versions new", churned),
    ];
    let most = stages.iter().map(|(_, held)| held.rss_mib).fold(0.0, f64::max);
    let mut table = Table::new(
        "memory: the gate's state (jemalloc, read at once)",
        &["stage", "rss MiB", "allocated MiB"],
    );
    for (name, held) in &stages {
        table.row([(*name).to_owned(), format!("{:.1}", held.rss_mib), format!("{:.1}", held.allocated_mib)]);
    }
    table.print();
    println!("  peak {peak:.1} MiB, goal {GOAL_MIB} MiB at every stage: {}", verdict(most <= GOAL_MIB));
    println!(
        "  {} bytes of JSON per pod, decoded and taken in within {:.1} µs; unchanged: {:.1} µs; first plan {:.0} ms",
        first.bytes_per_pod,
        first.us_per_pod,
        again.us_per_pod,
        ms(planning)
    );
    let rows: Vec<Value> = stages
        .iter()
        .map(|(name, held)| {
            json!({"stage": name, "rss_mib": round(held.rss_mib, 1), "allocated_mib": round(held.allocated_mib, 1)})
        })
        .collect();
    let file = json!({
        "pods": PODS,
        "namespaces": NAMESPACES,
        "quotas": NAMESPACES,
        "shapes": SHAPES,
        "gated_pods": PODS / GATED_ONE_IN,
        "rss_mib": round(most, 1),
        "rss_mib_after_list": round(listed.rss_mib, 1),
        "rss_mib_after_relist": round(relisted.rss_mib, 1),
        "peak_rss_mib": round(peak, 1),
        "goal_mib": GOAL_MIB,
        "met": most <= GOAL_MIB,
        "stages": rows,
        "pod_json_bytes": first.bytes_per_pod,
        "decode_us_per_pod": round(first.us_per_pod, 2),
        "decode_us_per_unchanged_pod": round(again.us_per_pod, 2),
        "pod_record_bytes": std::mem::size_of::<sluice_index::PodRecord>(),
        "first_plan_ms": round(ms(planning), 1),
        "first_plan_actions": actions,
        "quick": quick,
        "machine": machine,
    });
    report::write(out, "memory", &file)
}

fn feed_namespaces(state: &mut State) -> anyhow::Result<()> {
    state.begin_namespaces();
    for number in 0..NAMESPACES {
        let text = cluster_json::namespace(number, number + 1);
        state.apply_namespace(
            &serde_json::from_str::<NamespaceWire>(&text).context("decoding a namespace")?,
            NOW,
        );
    }
    state.end_namespaces(NOW);
    Ok(())
}

fn feed_quotas(state: &mut State) -> anyhow::Result<()> {
    state.begin_quotas();
    for number in 0..NAMESPACES {
        // Room for all that run, and for none that waits.
        let status = json!({
            "hard": cluster_json::hard(13),
            "used": {"pods": "13", "requests.cpu": "3", "requests.memory": "3Gi", "limits.cpu": "13", "limits.memory": "5Gi"},
            "held": 1, "charges": 4711, "requests": "requests.cpu: 3/20", "limits": "limits.cpu: 13/100",
        });
        let text = cluster_json::quota(number, NAMESPACES + number + 1, 13, Some(&status));
        state.apply_quota(&serde_json::from_str::<ArqWire>(&text).context("decoding a quota")?, NOW);
    }
    state.end_quotas(NOW);
    Ok(())
}

struct Fed {
    bytes_per_pod: u64,
    us_per_pod: f64,
}

/// One list of all pods. `newer` is added to every version.
fn feed_pods(state: &mut State, template: &Template, newer: u64) -> anyhow::Result<Fed> {
    let (mut taken, mut bytes) = (Duration::ZERO, 0);
    state.begin_pods();
    for page in 0..PODS / PAGE {
        let text = page_text(template, page * PAGE, newer);
        bytes += text.len() as u64;
        let begin = Instant::now();
        let list: ObjectList<PodWire> = serde_json::from_str(&text).context("decoding a page of pods")?;
        drop(text);
        for pod in &list.items {
            state.apply_pod(pod, NOW);
        }
        drop(list);
        taken += begin.elapsed();
    }
    let begin = Instant::now();
    state.end_pods();
    state.plan(NOW);
    taken += begin.elapsed();
    #[allow(clippy::cast_precision_loss)]
    Ok(Fed { bytes_per_pod: bytes / PODS, us_per_pod: taken.as_secs_f64() * 1e6 / PODS as f64 })
}

/// A page of a list, as the client holds it before decoding.
fn page_text(template: &Template, from: u64, newer: u64) -> String {
    let pods = (from..from + PAGE).map(|number| Facts {
        number,
        namespace: number / (PODS / NAMESPACES),
        version: 100_000 + number + newer,
        shape: shape(number),
        stage: if number % GATED_ONE_IN == 0 { Stage::Gated } else { Stage::Running },
    });
    cluster_json::page(("v1", "Pod"), (900_000, ""), 9_500, pods, |facts, text| template.write(facts, text))
}

impl Held {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let unknown = |error: tikv_jemalloc_ctl::Error| anyhow::anyhow!("asking the allocator: {error}");
        tikv_jemalloc_ctl::epoch::advance().map_err(unknown)?;
        let allocated = tikv_jemalloc_ctl::stats::allocated::read().map_err(unknown)?;
        #[allow(clippy::cast_precision_loss)]
        Ok(Self {
            rss_mib: kernel::memory_mib("self", "VmRSS")?,
            allocated_mib: allocated as f64 / f64::from(1 << 20),
        })
    }
}
