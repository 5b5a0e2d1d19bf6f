//! A gate's state without a server, and the little objects that it is fed with.

use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::objects::from_json;
use sluice_engine::ChargeRules;
use sluice_gate::{GateConfig, Moment, State};
use sluice_index::{PodWire, Targeting};

/// The moment in which benches begin.
pub const NOW: Moment = Moment { mono_ms: 1_000, unix_ms: 1_772_500_000_000 };

/// A state for which every namespace is targeted.
pub fn state() -> State {
    state_for(Targeting::new(kube::core::Selector::default(), [].into()))
}

/// A state for these namespaces.
pub fn state_for(targeting: Targeting) -> State {
    State::new(GateConfig::new(names::GATE, ChargeRules::for_minor(36)), targeting)
}

/// A namespace that may have labels.
pub fn apply_namespace(state: &mut State, name: &str, labels: &Value) {
    let metadata = json!({"name": name, "uid": name, "labels": labels});
    state.apply_namespace(&from_json(json!({"metadata": metadata})), NOW);
}

/// Decides as long as there is anything to decide.
pub fn settle(state: &mut State, now: Moment) {
    while state.next_due_ms(now) == Some(0) {
        state.plan(now);
    }
}

/// A quota with these limits.
pub fn quota<Q: serde::de::DeserializeOwned>(namespace: &str, version: u32, hard: &Value) -> Q {
    let uid = format!("quota-{namespace}");
    let metadata =
        json!({"name": "quota", "namespace": namespace, "uid": uid, "resourceVersion": version.to_string()});
    from_json(json!({"metadata": metadata, "spec": {"hard": hard}}))
}

/// A pod that asks for this; `changes` are merged in.
pub fn pod(namespace: &str, name: &str, requests: &Value, changes: &Value) -> PodWire {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut pod, changes);
    from_json(pod)
}

/// Of a pod that runs.
pub fn runs() -> Value {
    json!({"spec": {"nodeName": "node"}, "status": {"phase": "Running"}})
}
