//! Finds the API servers: they publish their own addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::{Api, Client, ResourceExt as _};
use sluice_runtime::client::Server;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch};
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

use crate::servers::Servers;

/// The name that every API server's certificate is for.
const TLS_NAME: &str = "kubernetes.default.svc";

/// Keeps `servers` told of all API servers until `cancel`.
pub async fn follow_servers(client: Client, servers: Arc<Servers>, cancel: CancellationToken) {
    let (tell, mut told) = signal::channel(Vec::new());
    let mut slices = Slices::default();
    let sink = move |event| {
        if slices.note(event) {
            tell.send_if_modified(|known| {
                let now = slices.servers();
                let changed = *known != now;
                *known = now;
                changed
            });
        }
    };
    let options = WatchOptions::default().fields("metadata.name=kubernetes");
    let health = WatchHealth::new("endpointslices (API servers)");
    let watching = watch(Api::<EndpointSlice>::namespaced(client, "default"), options, sink, health, cancel);
    let telling = async {
        while told.changed().await.is_ok() {
            let now = told.borrow_and_update().clone();
            if let Err(error) = servers.set(now).await {
                tracing::warn!(%error, "an API server's address cannot be used");
            }
        }
    };
    join(watching, telling).await;
}

/// Keeps `servers` told of the Leases with which API servers announce themselves until `cancel`
/// (`pkg/controlplane/apiserver/server.go`).
pub async fn follow_identities(client: Client, servers: Arc<Servers>, cancel: CancellationToken) {
    let mut listed: Option<BTreeSet<String>> = None;
    // A set: each Lease is renewed every few seconds, for as long as this process runs.
    let mut known: BTreeSet<String> = BTreeSet::new();
    let sink = move |event: Event<Lease>| match event {
        Event::Init => listed = Some(BTreeSet::new()),
        Event::InitDone => {
            let now = listed.take().unwrap_or_default();
            known.difference(&now).for_each(|name| servers.announced(name, None));
            known = now;
        }
        Event::InitApply(lease) | Event::Apply(lease) => {
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
            servers.announced(&lease.name_any(), renewed);
            listed.as_mut().unwrap_or(&mut known).insert(lease.name_any());
        }
        Event::Delete(lease) => {
            servers.announced(&lease.name_any(), None);
            known.remove(&lease.name_any());
        }
    };
    let options = WatchOptions::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
    let health = WatchHealth::new("leases (API servers)");
    watch(Api::<Lease>::namespaced(client, "kube-system"), options, sink, health, cancel).await;
}

/// Addresses by slice.
#[derive(Debug, Default)]
struct Slices {
    known: BTreeMap<String, Vec<Server>>,
    listing: Option<BTreeMap<String, Vec<Server>>>,
}

impl Slices {
    /// Returns whether what is known is complete.
    fn note(&mut self, event: Event<EndpointSlice>) -> bool {
        match event {
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(slice) => {
                let listing = self.listing.get_or_insert_default();
                listing.insert(slice.name_any(), servers(&slice));
            }
            Event::InitDone => {
                self.known = self.listing.take().unwrap_or_default();
                return true;
            }
            Event::Apply(slice) => {
                self.known.insert(slice.name_any(), servers(&slice));
                return true;
            }
            Event::Delete(slice) => {
                self.known.remove(&slice.name_any());
                return true;
            }
        }
        false
    }

    fn servers(&self) -> Vec<Server> {
        let mut servers: Vec<Server> = self.known.values().flatten().cloned().collect();
        servers.sort_by_key(|server| server.url.to_string());
        servers.dedup();
        servers
    }
}

fn servers(slice: &EndpointSlice) -> Vec<Server> {
    let ports = slice.ports.iter().flatten().filter(|port| port.name.as_deref() == Some("https"));
    let ports: Vec<i32> = ports.filter_map(|port| port.port).collect();
    let ready = |endpoint: &&Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let addresses = slice.endpoints.iter().flatten().filter(ready).flat_map(|endpoint| &endpoint.addresses);
    addresses.flat_map(|address| ports.iter().filter_map(move |port| server(address, *port))).collect()
}

fn server(address: &str, port: i32) -> Option<Server> {
    let url = if address.contains(':') {
        format!("https://[{address}]:{port}")
    } else {
        format!("https://{address}:{port}")
    };
    Some(Server { url: url.parse().ok()?, tls_name: Some(TLS_NAME.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, addresses: &[&str], ready: bool) -> EndpointSlice {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name}, "addressType": "IPv4",
            "endpoints": [{"addresses": addresses, "conditions": {"ready": ready}}],
            "ports": [{"name": "https", "port": 6443}, {"name": "other", "port": 1}],
        }))
        .unwrap()
    }

    fn urls(slices: &Slices) -> Vec<String> {
        slices.servers().iter().map(|server| server.url.to_string()).collect()
    }

    #[test]
    fn every_ready_address_is_a_server() {
        let mut slices = Slices::default();
        assert!(!slices.note(Event::Init));
        assert!(!slices.note(Event::InitApply(slice("a", &["10.0.0.2", "10.0.0.1"], true))));
        assert!(!slices.note(Event::InitApply(slice("b", &["10.0.0.3"], false))));
        assert_eq!(urls(&slices), Vec::<String>::new(), "half a list");
        assert!(slices.note(Event::InitDone));
        assert_eq!(urls(&slices), ["https://10.0.0.1:6443/", "https://10.0.0.2:6443/"]);
        assert!(slices.note(Event::Apply(slice("b", &["fd00::1"], true))));
        assert!(slices.note(Event::Delete(slice("a", &[], true))));
        assert_eq!(urls(&slices), ["https://[fd00::1]:6443/"]);
    }
}
