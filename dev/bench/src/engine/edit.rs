//! The edit of a quota that very many pods are about: how long others have to wait for the gate's state meanwhile.

use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_index::PodWire;

use crate::objects::{self, NOW};
use crate::report::{median, quantile, say};

const NAMESPACE: &str = "team";
const RUNNING: u32 = 10_000;
/// Each with a charge of its own.
const WAITING: u32 = 40_000;

/// What an edit costs.
#[derive(Serialize)]
pub(super) struct Edit {
    edit: &'static str,
    running: u32,
    waiting: u32,
    slice_p99_ns: f64,
    slice_max_ns: f64,
    whole_ns: f64,
}

/// Edits the limits of a full quota, and what it counts.
pub(super) fn measure(quick: bool) -> Vec<Edit> {
    say(&format!("engine: edits of a quota over {RUNNING} running and {WAITING} different waiting pods"));
    let (mut state, mut version, mut now) = (objects::state(), 1, NOW);
    objects::apply_namespace(&mut state, NAMESPACE, &Value::Null);
    state.apply_quota(&objects::quota(NAMESPACE, version, &json!({"requests.cpu": "10k"})), now);
    state.begin_pods();
    for number in 0..RUNNING + WAITING {
        state.apply_pod(&pod(number), now);
    }
    state.end_pods();
    state.lead(now);
    objects::settle(&mut state, now);
    let mut edits = Vec::new();
    let kinds = [
        ("other limits", [json!({"requests.cpu": "9k"}), json!({"requests.cpu": "10k"})]),
        ("other resources", [json!({"requests.cpu": "10k", "pods": "1M"}), json!({"requests.cpu": "10k"})]),
    ];
    for (edit, limits) in kinds {
        let (mut slices, mut wholes) = (Vec::new(), Vec::new());
        for hard in limits.iter().cycle().take(if quick { 4 } else { 20 }) {
            version += 1;
            now.mono_ms += 60_000;
            let edited = objects::quota(NAMESPACE, version, hard);
            let first = slices.len();
            let mut begin = Instant::now();
            state.apply_quota(&edited, now);
            loop {
                slices.push(begin.elapsed().as_secs_f64() * 1e9);
                if state.next_due_ms(now) != Some(0) {
                    break;
                }
                begin = Instant::now();
                drop(state.plan(now));
            }
            wholes.push(slices.iter().skip(first).sum());
        }
        let [slice_p99_ns, slice_max_ns] = [0.99, 1.0].map(|at| quantile(&mut slices, at));
        let whole_ns = median(&mut wholes);
        edits.push(Edit { edit, running: RUNNING, waiting: WAITING, slice_p99_ns, slice_max_ns, whole_ns });
    }
    edits
}

/// The first ones run and take all there is.
fn pod(number: u32) -> PodWire {
    let runs = number < RUNNING;
    let cpu = if runs { "1".to_owned() } else { format!("{}m", 1_000 + number) };
    let gates = if runs { json!([]) } else { json!([{"name": names::GATE}]) };
    let gated = json!({"spec": {"schedulingGates": gates}});
    objects::pod(NAMESPACE, &format!("p{number}"), &json!({"cpu": cpu}), &gated)
}
