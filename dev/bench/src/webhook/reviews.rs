//! The reviews that one pod's life causes: creation at the gate, creation after all mutation, an update.

use anyhow::Context as _;
use bytes::Bytes;
use serde_json::{Value, json};
use sluice_api::{Endpoint, names};

use crate::pod_json::{Facts, Stage, Template};

const CREATOR: &str = "system:serviceaccount:kube-system:replicaset-controller";

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) endpoint: &'static str,
    pub(super) path: &'static str,
    pub(super) bytes: Bytes,
}

/// One of each, to be sent in turns.
pub(super) fn all() -> anyhow::Result<Vec<Body>> {
    let mut stamped = pod()?;
    remove(&mut stamped, "/spec", "nodeName");
    let mut bare = stamped.clone();
    remove(&mut bare, "/metadata/annotations", names::CREATED_BY_ANNOTATION);
    remove(&mut bare, "/spec", "schedulingGates");
    let body = |endpoint, path, operation: &str, object: &Value, old: Option<&Value>| {
        let bytes = Bytes::from(review(operation, object, old).to_string());
        Body { endpoint, path, bytes }
    };
    Ok(vec![body("pod_gate", Endpoint::PodGate.path(), "CREATE", &bare, None)])
}

fn pod() -> anyhow::Result<Value> {
    let mut text = String::new();
    let facts = Facts { number: 1, namespace: 1, version: 1, shape: 1, stage: Stage::Gated };
    Template::new().write(facts, &mut text);
    serde_json::from_str(&text).context("the template of a pod is no JSON")
}

fn remove(object: &mut Value, place: &str, member: &str) {
    if let Some(map) = object.pointer_mut(place).and_then(Value::as_object_mut) {
        map.remove(member);
    }
}

fn review(operation: &str, object: &Value, old: Option<&Value>) -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": object.pointer("/metadata/name"),
            "namespace": object.pointer("/metadata/namespace"),
            "operation": operation,
            "userInfo": {"username": CREATOR, "uid": "1a2b", "groups": ["system:serviceaccounts", "system:authenticated"]},
            "object": object,
            "oldObject": old,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}
