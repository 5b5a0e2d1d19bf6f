//! The answers to dry runs by which Sluice learns that its admission policies are in force: here they always are.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use sluice_api::names;

use super::answer::{Body, refusal, whole};

/// Gates a probe that can be gated, and refuses one that names its node.
pub(super) fn gate_probe(body: &[u8]) -> Response<Body> {
    let Ok(mut probe) = serde_json::from_slice::<Value>(body) else {
        return refusal(StatusCode::BAD_REQUEST, "BadRequest", "the probe is no JSON");
    };
    if probe.pointer("/spec/nodeName").is_some() {
        let policy = names::GATED_POLICY;
        return denied(&format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request"
        ));
    }
    let gated = json!({
        "metadata": {"annotations": {names::CREATED_BY_ANNOTATION: "bench"}},
        "spec": {"schedulingGates": [{"name": names::GATE}]},
    });
    json_patch::merge(&mut probe, &gated);
    whole(StatusCode::CREATED, probe.to_string())
}

/// What a policy says to what it refuses.
pub(super) fn denied(message: &str) -> Response<Body> {
    refusal(StatusCode::FORBIDDEN, "Forbidden", message)
}
