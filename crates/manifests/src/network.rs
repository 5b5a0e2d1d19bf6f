//! Who may connect to the pods, and where they may connect to.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::{metadata, set};
use crate::options::InstallOptions;

/// Ports of DNS servers: OpenShift's listen on another one behind their Service.
const DNS_PORTS: [u16; 2] = [53, 5353];

/// For the operator: it makes the others.
pub(crate) fn of_operator(options: &InstallOptions) -> Value {
    policy(options, names::OPERATOR, &[], &[])
}

/// In: the webhook's port for any client, for no label selects API servers; from the webhook the leader's port.
/// Out: from the webhook to the leader.
pub(crate) fn of_operands(options: &InstallOptions) -> [Value; 2] {
    let reviews = json!({ "ports": [one("TCP", options.webhook_port)] });
    let to_leader =
        json!({ "to": pods(options, names::CONTROLLER), "ports": [one("TCP", names::GROWTH_PORT)] });
    [
        policy(options, names::WEBHOOK, &[reviews], &[to_leader]),
        policy(options, names::CONTROLLER, &[growth(options)], &[]),
    ]
}

/// Who may connect to the pods of a component, and where they may connect to, besides what holds for each of them. In: the
/// metrics for namespaces with [`names::MONITORING_LABEL`], or for whom the options name; what a kubelet asks of pods of its
/// own node no policy stops.
/// Out: the ports of API servers and of DNS.
fn policy(options: &InstallOptions, component: &'static str, ingress: &[Value], egress: &[Value]) -> Value {
    let monitoring = json!({ "matchLabels": { names::MONITORING_LABEL: "enabled" } });
    let from = match options.metrics_from.as_slice() {
        [] => json!([{ "namespaceSelector": monitoring }]),
        named => json!(named),
    };
    let metrics = json!({
        "from": from,
        "ports": [one("TCP", names::METRICS_PORT)],
    });
    let to_dns = DNS_PORTS.iter().flat_map(|port| ["UDP", "TCP"].map(|protocol| one(protocol, *port)));
    let to_api_servers = options.api_server_ports.iter().map(|port| one("TCP", *port));
    let dns = json!({ "ports": to_dns.collect::<Vec<_>>() });
    let mut servers = json!({ "ports": to_api_servers.collect::<Vec<_>>() });
    if !options.api_server_cidrs.is_empty() {
        let blocks = options.api_server_cidrs.iter().map(|cidr| json!({ "ipBlock": { "cidr": cidr } }));
        set(&mut servers, "to", blocks.collect());
    }
    let (ingress, egress) = ([&[metrics], ingress].concat(), [&[servers, dns], egress].concat());
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(options, component),
        "spec": {
            "podSelector": { "matchLabels": options.naming.selector(component) },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    })
}

/// From the webhook alone, unless it has the address of its node: no label selects that.
fn growth(options: &InstallOptions) -> Value {
    let ports = [one("TCP", names::GROWTH_PORT)];
    if options.host_network {
        json!({ "ports": ports })
    } else {
        json!({ "from": pods(options, names::WEBHOOK), "ports": ports })
    }
}

fn pods(options: &InstallOptions, component: &'static str) -> Value {
    json!([{ "podSelector": { "matchLabels": options.naming.selector(component) } }])
}

fn one(protocol: &str, port: u16) -> Value {
    json!({ "protocol": protocol, "port": port })
}
