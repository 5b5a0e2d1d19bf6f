//! Where pods run, and how their replicas follow each other.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::set;
use crate::options::InstallOptions;

/// Sets the fields of the pod `spec` of this component that say where it runs and with what it is pulled.
pub(crate) fn place(options: &InstallOptions, component: &str, spec: &mut Value) {
    if !options.node_selector.is_empty() {
        set(spec, "nodeSelector", json!(options.node_selector));
    }
    if !options.tolerations.is_empty() {
        set(spec, "tolerations", json!(options.tolerations));
    }
    if !options.image_pull_secrets.is_empty() {
        let secrets: Vec<_> = options.image_pull_secrets.iter().map(|name| json!({ "name": name })).collect();
        set(spec, "imagePullSecrets", json!(secrets));
    }
    if on_host(options, component) {
        set(spec, "hostNetwork", json!(true));
        set(spec, "dnsPolicy", json!("ClusterFirstWithHostNet"));
    }
}

/// How a Deployment is rolled. Two pods with the network of one node cannot listen on the same port, so where there are no
/// more nodes than replicas the old one has to go first.
pub(crate) fn strategy(options: &InstallOptions, component: &str) -> Value {
    let (surge, unavailable) = if on_host(options, component) { (0, 1) } else { (1, 0) };
    json!({
        "type": "RollingUpdate",
        "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable },
    })
}

/// API servers call the webhook alone.
fn on_host(options: &InstallOptions, component: &str) -> bool {
    options.host_network && component == names::WEBHOOK
}
