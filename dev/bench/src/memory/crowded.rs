//! Pods that name very many extended resources, each with other amounts, so that nothing is shared: what is kept of them,
//! and how long the state is locked for one.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use sluice_api::names::GATE;
use sluice_engine::ChargeRules;
use sluice_index::{PodFacts, PodWire};

use super::Held;
use crate::objects::{NOW, apply_namespace, pod, state};
use crate::report::ms;

const PODS: u32 = 1_000;
/// Names in a pod: as many as are kept, and as many as an API server takes.
const NAMES: [u32; 2] = [64, 10_000];
pub(super) const GOAL_MIB: f64 = 16.0;
pub(super) const GOAL_LOCK_MS: f64 = 2.0;

/// One for each number of names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowded {
    pub(super) names: u32,
    pub(super) kept_mib: f64,
    pub(super) lock_p99_ms: f64,
}

/// Measures.
///
/// # Errors
/// When the allocator does not tell.
pub(super) fn measure() -> anyhow::Result<Vec<Crowded>> {
    NAMES.into_iter().map(measure_with).collect()
}

fn measure_with(names: u32) -> anyhow::Result<Crowded> {
    let mut state = state();
    apply_namespace(&mut state, "crowded", &json!({}));
    let before = Held::read()?.allocated_mib;
    let mut locked: Vec<Duration> = Vec::with_capacity(PODS as usize);
    for number in 0..PODS {
        let facts = PodFacts::read(&crowded(number, names), GATE, ChargeRules::for_minor(36), NOW.unix_s());
        let begin = Instant::now();
        state.apply_read_pod(facts, NOW);
        locked.push(begin.elapsed());
    }
    let kept_mib = Held::read()?.allocated_mib - before;
    locked.sort_unstable();
    let p99 = locked.get(locked.len() * 99 / 100).copied().unwrap_or_default();
    Ok(Crowded { names, kept_mib, lock_p99_ms: ms(p99) })
}

/// A launcher, of which is kept what its container takes as well.
fn crowded(number: u32, names: u32) -> PodWire {
    let requests: Map<String, Value> = (0..names)
        .map(|name| (format!("a.io/{number}-{name}"), json!((number + name + 1).to_string())))
        .collect();
    let resources = json!({"requests": requests, "limits": requests});
    let owner =
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "vm"});
    let changes = json!({
        "metadata": {"ownerReferences": [owner]},
        "spec": {"schedulingGates": [{"name": GATE}], "containers": [{"name": "compute", "resources": resources}]},
    });
    pod("crowded", &format!("p{number}"), &json!({}), &changes)
}
