//! Finds the API servers: they publish their own addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

use super::Servers;
use crate::client::Server;
use crate::watch::{Event, WatchHealth, WatchOptions, WentBack, watch};

/// The name that every API server's certificate is for.
const TLS_NAME: &str = "kubernetes.default.svc";

/// Keeps `servers` told of all API servers until `cancel`.
///
/// # Errors
/// As [`watch`].
pub async fn follow_servers(
    client: Client,
    servers: Arc<Servers>,
    cancel: CancellationToken,
) -> Result<(), WentBack> {
    let (tell, mut told) = signal::channel(Vec::new());
    let mut slices = NamedObjects::default();
    let sink = move |event| {
        if slices.note(event, addresses) {
            tell.send_if_modified(|known| {
                let now = all(&slices);
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
    join(watching, telling).await.0
}

/// Keeps `servers` told of the Leases with which API servers announce themselves until `cancel`
/// (`pkg/controlplane/apiserver/server.go`).
///
/// # Errors
/// As [`watch`].
pub async fn follow_identities(
    client: Client,
    servers: Arc<Servers>,
    cancel: CancellationToken,
) -> Result<(), WentBack> {
    let mut leases = NamedObjects::default();
    let sink = move |event: Event<Lease>| {
        let renewed = |lease: &Lease| Some(lease.spec.as_ref()?.renew_time.as_ref()?.0);
        if leases.note(event, renewed) {
            servers.announced(leases.now.values().copied().flatten().collect());
        }
    };
    let options = WatchOptions::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
    let health = WatchHealth::new("leases (API servers)");
    watch(Api::<Lease>::namespaced(client, "kube-system"), options, sink, health, cancel).await
}

/// What a watch tells of a few objects, by name.
struct NamedObjects<T> {
    now: BTreeMap<String, T>,
    listing: Option<BTreeMap<String, T>>,
}

impl<T> Default for NamedObjects<T> {
    fn default() -> Self {
        Self { now: BTreeMap::new(), listing: None }
    }
}

impl<T> NamedObjects<T> {
    /// Returns whether what is known is complete.
    fn note<K: kube::Resource>(&mut self, event: Event<K>, read: impl Fn(&K) -> T) -> bool {
        match event {
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                self.listing.get_or_insert_default().insert(object.name_any(), read(&object));
            }
            Event::InitDone => self.now = self.listing.take().unwrap_or_default(),
            Event::Apply(object) => _ = self.now.insert(object.name_any(), read(&object)),
            Event::Delete(object) => _ = self.now.remove(&object.name_any()),
        }
        self.listing.is_none()
    }
}

fn all(slices: &NamedObjects<Vec<Server>>) -> Vec<Server> {
    let mut servers: Vec<Server> = slices.now.values().flatten().cloned().collect();
    servers.sort_by_key(|server| server.url.to_string());
    servers.dedup();
    servers
}

fn addresses(slice: &EndpointSlice) -> Vec<Server> {
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

    fn urls(slices: &NamedObjects<Vec<Server>>) -> Vec<String> {
        all(slices).iter().map(|server| server.url.to_string()).collect()
    }

    #[test]
    fn every_ready_address_is_a_server() {
        let mut slices = NamedObjects::default();
        assert!(!slices.note(Event::Init, addresses));
        assert!(!slices.note(Event::InitApply(slice("a", &["10.0.0.2", "10.0.0.1"], true)), addresses));
        assert!(!slices.note(Event::InitApply(slice("b", &["10.0.0.3"], false)), addresses));
        assert_eq!(urls(&slices), Vec::<String>::new(), "half a list");
        assert!(slices.note(Event::InitDone, addresses));
        assert_eq!(urls(&slices), ["https://10.0.0.1:6443/", "https://10.0.0.2:6443/"]);
        assert!(slices.note(Event::Apply(slice("b", &["fd00::1"], true)), addresses));
        assert!(slices.note(Event::Delete(slice("a", &[], true)), addresses));
        assert_eq!(urls(&slices), ["https://[fd00::1]:6443/"]);
    }
}
