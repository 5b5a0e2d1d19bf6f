//! Pods as a client sends them, and what is said of the answer.

use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::Response;
use sluice_e2e::objects;

use crate::context::gates;

pub fn pod(name: &str) -> Value {
    let mut pod = serde_json::to_value(objects::pod(name, &[])).unwrap();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod
}

pub fn with_gates(mut pod: Value, gates: &[&str]) -> Value {
    pod["spec"]["schedulingGates"] = gates.iter().map(|name| json!({ "name": name })).collect();
    pod
}

pub fn with_stamp(mut pod: Value, stamp: &str) -> Value {
    pod["metadata"]["annotations"][names::CREATED_BY_ANNOTATION] = json!(stamp);
    pod
}

pub fn stamp(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][names::CREATED_BY_ANNOTATION].as_str()
}

/// The answer created a pod that is gated and stamped with this name.
pub fn assert_gated(answer: &Response, creator: &str) {
    assert!(answer.is_ok(), "{answer:?}");
    assert!(gates(&answer.body).contains(&names::GATE), "{answer:?}");
    assert_eq!(stamp(&answer.body), Some(creator), "{answer:?}");
}

pub fn assert_refused(answer: &Response, words: &[&str]) {
    assert_eq!(answer.code, 403, "{answer:?}");
    for word in words {
        assert!(answer.message().contains(word), "{word}: {}", answer.message());
    }
}
