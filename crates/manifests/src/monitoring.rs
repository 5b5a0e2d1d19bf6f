//! What Prometheus' operator gets: a ServiceMonitor, with an account that sees the metrics alone and a way in, and alerts.

use serde_json::{Value, json};
use sluice_api::names;

use crate::alerts;
use crate::object::{cluster_metadata, labelled, labels, metadata, set, set_in};
use crate::options::InstallOptions;
use crate::rbac::{account, binding, subject};

const API_VERSION: &str = "monitoring.coreos.com/v1";
/// A token that does not end: Prometheus reads it from a Secret.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

/// What the options ask for; nothing by default.
#[must_use]
pub fn monitoring_objects(options: &InstallOptions) -> Vec<Value> {
    let mut objects = Vec::new();
    if options.monitoring.service_monitor {
        objects.extend(scraper(options));
        objects.push(way_in(options));
        objects.push(selectable(options, monitor(options)));
    }
    if options.monitoring.rules {
        objects.push(selectable(options, rules(options)));
    }
    labelled(options, objects)
}

/// An account for the ServiceMonitor, whoever Prometheus runs as, and its token.
fn scraper(options: &InstallOptions) -> [Value; 3] {
    let mut bound = binding(options, "ClusterRole", cluster_metadata(names::SCRAPER), names::METRICS_READER);
    set(&mut bound, "subjects", json!([subject(options, names::SCRAPER)]));
    let mut token = metadata(options, names::SCRAPER);
    let of = json!({ "kubernetes.io/service-account.name": names::SCRAPER });
    set(&mut token, "annotations", of);
    [
        account(options, names::SCRAPER),
        bound,
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": token, "type": TOKEN_TYPE }),
    ]
}

/// Policies add up. Where Prometheus runs nobody knows, and who has no token is refused.
fn way_in(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(options, names::METRICS_SERVICE),
        "spec": {
            "podSelector": { "matchLabels": labels(None) },
            "policyTypes": ["Ingress"],
            "ingress": [{ "ports": [{ "protocol": "TCP", "port": names::METRICS_PORT }] }],
        },
    })
}

fn monitor(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ServiceMonitor",
        "metadata": metadata(options, names::METRICS_SERVICE),
        "spec": {
            "selector": { "matchLabels": labels(Some(names::METRICS_SERVICE)) },
            "endpoints": [{
                "port": "metrics",
                "scheme": "https",
                "path": names::PATH_METRICS,
                // The namespace of a quota is not that of the pod that tells of it.
                "honorLabels": true,
                "authorization": { "credentials": { "name": names::SCRAPER, "key": "token" } },
                "tlsConfig": {
                    // One of the names in the certificate, and the one that has no namespace in it.
                    "serverName": names::METRICS_SERVICE,
                    "ca": { "secret": { "name": options.naming.parts().serving, "key": names::CA_BUNDLE } },
                },
            }],
        },
    })
}

fn rules(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "PrometheusRule",
        "metadata": metadata(options, names::APP),
        "spec": { "groups": alerts::groups() },
    })
}

/// With the labels by which a Prometheus selects it.
fn selectable(options: &InstallOptions, mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata") {
        for (key, value) in &options.monitoring.labels {
            set_in(metadata, "labels", key, json!(value));
        }
    }
    object
}
