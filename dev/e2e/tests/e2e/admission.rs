//! What the API server lets in, told by the real API server that calls the real webhook over TLS.

mod gate;
mod guard;
mod identity;
mod quotas;
mod reviews;

use serde_json::Value;

/// Names of the gates of a pod, in order.
fn gates(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.into_iter().flatten().filter_map(|gate| gate["name"].as_str()).collect()
}

fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

fn quotas_path(namespace: &str) -> String {
    format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}/applicationawareresourcequotas")
}
