//! 150,000 pods, 10,000 namespaces and as many quotas in the gate's state, fed through the decoding that the watch
//! uses: pages of 500 as the API server lists them.

mod crowded;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::api::ObjectList;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::objects::from_json;
use sluice_engine::NamespacePattern;
use sluice_gate::State;
use sluice_index::{PodWire, Targeting};

use crate::objects::{NOW, state_for};
use crate::pod_json::{Facts, SHAPES, Stage, Template, shape};
use crate::report::{Run, figures, ms, rows, say};
use crate::{cluster_json, kernel};

const PODS: u64 = 150_000;
const NAMESPACES: u64 = 10_000;
/// Of so many pods one waits.
const GATED_ONE_IN: u64 = 10;
/// As in the watch.
const PAGE: u64 = 500;
const GOAL_MIB: f64 = 128.0;

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
pub fn run(run: &Run) -> anyhow::Result<()> {
    let template = Template::new();
    let mut stages = Vec::new();
    let mut stage = |name| {
        let held = Held::read()?;
        stages.push(json!({"stage": name, "rss_mib": held.rss_mib, "allocated_mib": held.allocated_mib}));
        anyhow::Ok(held.rss_mib)
    };
    let mut most = stage("empty process")?;
    let selector = kube::core::Expression::Exists(names::TARGET_LABEL.to_owned()).into();
    let targeting = Targeting::new(selector, [NamespacePattern::named(names::INSTALL_NAMESPACE)].into());
    let mut state = state_for(targeting);

    say(&format!("memory: {NAMESPACES} namespaces and quotas, {PODS} pods"));
    feed_namespaces(&mut state);
    feed_quotas(&mut state);
    most = stage("10,000 namespaces and quotas")?.max(most);
    let first = feed_pods(&mut state, &template, 0)?;
    let listed = stage("150,000 pods listed")?;
    let planning = Instant::now();
    state.lead(NOW);
    let actions = state.plan(NOW).len();
    let planning = planning.elapsed();
    most = stage("leading, first plan made")?.max(most).max(listed);
    say("memory: the same list again, unchanged");
    let again = feed_pods(&mut state, &template, 0)?;
    let relisted = stage("listed again, unchanged")?;
    say("memory: once more, every pod with another version");
    feed_pods(&mut state, &template, PODS)?;
    most = stage("listed again, all versions new")?.max(most).max(relisted);
    anyhow::ensure!(state.index().0.len() as u64 == PODS, "the index holds {} pods", state.index().0.len());

    let peak = kernel::memory_mib("self", "VmHWM")?;
    say("memory: pods of very many names");
    let crowded = crowded::measure()?;
    let crowded_mib = crowded.iter().map(|row| row.kept_mib).fold(0.0, f64::max);
    let crowded_ms = crowded.iter().map(|row| row.lock_p99_ms).fold(0.0, f64::max);
    let is_small = crowded_mib <= crowded::GOAL_MIB && crowded_ms <= crowded::GOAL_LOCK_MS;
    let crowded: Vec<Value> = crowded
        .iter()
        .map(|row| json!({"names": row.names, "kept_mib": row.kept_mib, "lock_p99_ms": row.lock_p99_ms}))
        .collect();

    let file = json!({
        "pods": PODS,
        "namespaces": NAMESPACES,
        "quotas": NAMESPACES,
        "shapes": SHAPES,
        "gated_pods": PODS / GATED_ONE_IN,
        "rss_mib": most,
        "rss_mib_after_list": listed,
        "rss_mib_after_relist": relisted,
        "peak_rss_mib": peak,
        "goal_mib": GOAL_MIB,
        "crowded": crowded,
        "crowded_mib": crowded_mib,
        "goal_crowded_mib": crowded::GOAL_MIB,
        "crowded_lock_p99_ms": crowded_ms,
        "goal_crowded_lock_ms": crowded::GOAL_LOCK_MS,
        "met": most <= GOAL_MIB && is_small,
        "stages": stages,
        "pod_json_bytes": first.bytes_per_pod,
        "decode_us_per_pod": first.us_per_pod,
        "decode_us_per_unchanged_pod": again.us_per_pod,
        "pod_record_bytes": std::mem::size_of::<sluice_index::PodRecord>(),
        "first_plan_ms": ms(planning),
        "first_plan_actions": actions,
    });
    print(&file, &stages)?;
    run.write("memory", file)
}

fn print(file: &Value, stages: &[Value]) -> anyhow::Result<()> {
    let columns = [("stage", "stage"), ("rss MiB", "rss_mib"), ("allocated MiB", "allocated_mib")];
    rows("memory: the gate's state (jemalloc, read at once)", &columns, stages)?;
    let lines = [
        ("the most of a stage, MiB", "rss_mib", Some("goal_mib")),
        ("peak, MiB", "peak_rss_mib", None),
        ("bytes of JSON of a pod", "pod_json_bytes", None),
        ("µs to decode a pod and take it in", "decode_us_per_pod", None),
        ("the same, unchanged", "decode_us_per_unchanged_pod", None),
        ("ms of the first plan", "first_plan_ms", None),
        ("1,000 pods of 64 or 10,000 names, MiB", "crowded_mib", Some("goal_crowded_mib")),
        ("state locked for one, p99, ms", "crowded_lock_p99_ms", Some("goal_crowded_lock_ms")),
    ];
    figures("memory: in all", &lines, file);
    Ok(())
}

fn feed_namespaces(state: &mut State) {
    state.begin_namespaces();
    for number in 0..NAMESPACES {
        state.apply_namespace(&from_json(cluster_json::namespace(number, number + 1)), NOW);
    }
    state.end_namespaces(NOW);
}

fn feed_quotas(state: &mut State) {
    state.begin_quotas();
    for number in 0..NAMESPACES {
        // Room for all that run, and for none that waits.
        let status = json!({
            "hard": cluster_json::hard(13),
            "used": {
                "pods": "13", "requests.cpu": "3", "requests.memory": "3Gi", "limits.cpu": "13", "limits.memory": "5Gi",
            },
            "held": 1, "charges": 4711, "requests": "requests.cpu: 3/20", "limits": "limits.cpu: 13/100",
        });
        let quota = cluster_json::quota(number, NAMESPACES + number + 1, 13, Some(&status));
        state.apply_quota(&from_json(quota), NOW);
    }
    state.end_quotas(NOW);
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
