//! Who may connect to the pods, and where they may connect to.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::{labels, metadata};
use crate::options::InstallOptions;

/// Ports of DNS servers: OpenShift's listen on another one behind their Service.
const DNS_PORTS: [u16; 2] = [53, 5353];

/// In: the webhook's port for any client, for no label selects API servers; from the webhook the leader's port; the metrics
/// for namespaces with [`names::MONITORING_LABEL`]. What a kubelet asks of pods of its own node no policy stops.
/// Out: the ports of API servers and of DNS.
pub(crate) fn objects(options: &InstallOptions) -> [Value; 3] {
    let policy = |name: &str, selector: Value, spec: Value| {
        let mut object = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(options, name),
            "spec": spec,
        });
        crate::object::set_in(&mut object, "spec", "podSelector", json!({ "matchLabels": selector }));
        object
    };
    let monitoring = json!({ "matchLabels": { names::MONITORING_LABEL: "enabled" } });
    let to_dns = DNS_PORTS.iter().flat_map(|port| ["UDP", "TCP"].map(|protocol| one(protocol, *port)));
    let to_api_servers = options.api_server_ports.iter().map(|port| one("TCP", *port));
    let ports: Vec<Value> = to_api_servers.chain(to_dns).collect();
    [
        policy(
            names::APP,
            labels(None),
            json!({
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{
                    "from": [{ "namespaceSelector": monitoring }],
                    "ports": [one("TCP", names::METRICS_PORT)],
                }],
                "egress": [{ "ports": ports }],
            }),
        ),
        policy(
            names::WEBHOOK,
            labels(Some(names::WEBHOOK)),
            json!({
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "ports": [one("TCP", options.webhook_port)] }],
                "egress": [{ "to": pods(names::CONTROLLER), "ports": [one("TCP", names::GROWTH_PORT)] }],
            }),
        ),
        policy(
            names::CONTROLLER,
            labels(Some(names::CONTROLLER)),
            json!({
                "policyTypes": ["Ingress"],
                "ingress": [growth(options)],
            }),
        ),
    ]
}

/// From the webhook alone, unless it has the address of its node: no label selects that.
fn growth(options: &InstallOptions) -> Value {
    let ports = [one("TCP", names::GROWTH_PORT)];
    if options.host_network {
        json!({ "ports": ports })
    } else {
        json!({ "from": pods(names::WEBHOOK), "ports": ports })
    }
}

fn pods(component: &str) -> Value {
    json!([{ "podSelector": { "matchLabels": labels(Some(component)) } }])
}

fn one(protocol: &str, port: u16) -> Value {
    json!({ "protocol": protocol, "port": port })
}
