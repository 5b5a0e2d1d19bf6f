//! Services: where API servers reach the webhook, and what is scraped.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::{labels, metadata};
use crate::options::InstallOptions;

pub(crate) fn objects(options: &InstallOptions) -> [Value; 2] {
    [service(options), metrics_service(options)]
}

fn service(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(options, options.naming.parts().webhook),
        "spec": {
            "type": "ClusterIP",
            "selector": options.naming.selector(names::WEBHOOK),
            "ports": [{
                "name": "webhook",
                "port": names::WEBHOOK_SERVICE_PORT,
                "targetPort": "webhook",
                "protocol": "TCP",
            }],
        },
    })
}

/// Without an address of its own: each container is scraped by itself, under this name in the certificate.
fn metrics_service(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(options, names::METRICS_SERVICE),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": labels(None),
            "ports": [{
                "name": "metrics",
                "port": names::METRICS_PORT,
                "targetPort": "metrics",
                "protocol": "TCP",
            }],
        },
    })
}
