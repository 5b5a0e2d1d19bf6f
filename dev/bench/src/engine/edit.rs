//! The edit of a quota that very many pods are about: how long others have to wait for the gate's state meanwhile.

use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_controllers::gate::{GateConfig, Moment, State};
use sluice_engine::ChargeRules;
use sluice_index::Targeting;
use sluice_index::{ArqWire, NamespaceWire, PodWire};

use crate::report::{quantile, round, say};

const NAMESPACE: &str = "team";
const RUNNING: u32 = 10_000;
/// Each with a charge of its own.
const WAITING: u32 = 40_000;

/// What an edit costs.
pub(super) struct Edit {
    name: &'static str,
    slice_p99_ns: f64,
    slice_max_ns: f64,
    whole_ns: f64,
}

impl Edit {
    pub(super) fn json(&self) -> Value {
        json!({
            "edit": self.name,
            "running": RUNNING,
            "waiting": WAITING,
            "slice_p99_ns": round(self.slice_p99_ns, 0),
            "slice_max_ns": round(self.slice_max_ns, 0),
            "whole_ns": round(self.whole_ns, 0),
        })
    }

    pub(super) fn cells(&self) -> [String; 4] {
        [
            self.name.to_owned(),
            format!("{:.0}", self.slice_p99_ns / 1e3),
            format!("{:.0}", self.slice_max_ns / 1e3),
            format!("{:.1}", self.whole_ns / 1e6),
        ]
    }
}

/// Edits the limits of a full quota, and what it counts.
pub(super) fn measure(quick: bool) -> anyhow::Result<Vec<Edit>> {
    say(&format!("engine: edits of a quota over {RUNNING} running and {WAITING} different waiting pods"));
    let targeting = Targeting::new(kube::core::Selector::default(), [].into());
    let mut state = State::new(GateConfig::new(names::GATE, ChargeRules::for_minor(36)), targeting);
    let namespace = json!({"metadata": {"name": NAMESPACE, "uid": "namespace"}});
    let namespace: NamespaceWire = serde_json::from_value(namespace).context("decoding a namespace")?;
    let (mut version, mut now) = (1, Moment { mono_ms: 1_000, unix_ms: 1_772_500_000_000 });
    state.apply_namespace(&namespace, now);
    state.apply_quota(&quota(version, &json!({"requests.cpu": "10k"}))?, now);
    state.begin_pods();
    for number in 0..RUNNING + WAITING {
        state.apply_pod(&pod(number)?, now);
    }
    state.end_pods();
    state.lead(now);
    while state.next_due_ms(now) == Some(0) {
        state.plan(now);
    }
    let mut edits = Vec::new();
    let kinds = [
        ("other limits", [json!({"requests.cpu": "9k"}), json!({"requests.cpu": "10k"})]),
        ("other resources", [json!({"requests.cpu": "10k", "pods": "1M"}), json!({"requests.cpu": "10k"})]),
    ];
    for (name, limits) in kinds {
        let (mut slices, mut wholes) = (Vec::new(), Vec::new());
        for hard in limits.iter().cycle().take(if quick { 4 } else { 20 }) {
            version += 1;
            now.mono_ms += 60_000;
            let edited = quota(version, hard)?;
            let mut whole = 0.0;
            let mut slice = |begin: Instant| {
                let took = begin.elapsed().as_secs_f64() * 1e9;
                slices.push(took);
                whole += took;
            };
            let begin = Instant::now();
            state.apply_quota(&edited, now);
            slice(begin);
            while state.next_due_ms(now) == Some(0) {
                let begin = Instant::now();
                drop(state.plan(now));
                slice(begin);
            }
            wholes.push(whole);
        }
        let [slice_p99_ns, slice_max_ns] = [0.99, 1.0].map(|at| quantile(&mut slices, at));
        let whole_ns = quantile(&mut wholes, 0.5);
        edits.push(Edit { name, slice_p99_ns, slice_max_ns, whole_ns });
    }
    Ok(edits)
}

fn quota(version: u32, hard: &Value) -> anyhow::Result<ArqWire> {
    let metadata = json!({
        "name": "compute", "namespace": NAMESPACE, "uid": "quota", "resourceVersion": version.to_string(),
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": {"hard": hard}})).context("decoding a quota")
}

/// The first ones run and take all there is.
fn pod(number: u32) -> anyhow::Result<PodWire> {
    let runs = number < RUNNING;
    let cpu = if runs { "1".to_owned() } else { format!("{}m", 1_000 + number) };
    let gates = if runs { json!([]) } else { json!([{"name": names::GATE}]) };
    let pod = json!({
        "metadata": {
            "name": format!("p{number}"), "namespace": NAMESPACE, "uid": format!("pod-{number}"),
            "resourceVersion": (100 + number).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"schedulingGates": gates, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"},
    });
    serde_json::from_value(pod).context("decoding a pod")
}
