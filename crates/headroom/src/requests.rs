//! The requests of an opening. Each is one call; nothing here decides about quotas.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use sluice_api::{MigrationWindow, names};
use sluice_index::wire::{HeadroomNamespaceWire, HeadroomPolicyWire, MigrationWire, VmmrqWire};
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::raw::{Call, JSON, JSON_PATCH, Reply, send};

use crate::clock::ServerClock;
use crate::servers::Servers;

/// Limit for one request.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// What the API server itself gets for a raise: after that it must not be written any more.
const RAISE_TIME: &str = "?timeout=1s";
/// Where KubeVirt's objects of a namespace are.
const MIGRATIONS: &str = "/apis/kubevirt.io/v1/namespaces";

/// A window that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// The object's uid.
    pub uid: String,
    /// The object's version.
    pub version: String,
    /// What its denials say.
    pub nonce: String,
    /// When its lock ends, by the API server's clock.
    pub until: Timestamp,
}

/// Talks to the API servers on behalf of windows.
pub struct Requests {
    client: Client,
    pub(crate) servers: Arc<Servers>,
    pub(crate) clock: Arc<ServerClock>,
    writes: ApiWrites,
}

/// What a budget is made of.
#[derive(Clone, Debug)]
pub struct BudgetWires {
    /// The namespace's own grants.
    pub vmmrqs: Vec<VmmrqWire>,
    /// All policies.
    pub policies: Vec<HeadroomPolicyWire>,
    /// The namespace, by whose labels policies select.
    pub namespace: HeadroomNamespaceWire,
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Requests {
    /// Requests of `client`; proofs and drains go to each of `servers`.
    pub fn new(client: Client, servers: Arc<Servers>, writes: ApiWrites) -> Self {
        Self { client, servers, clock: Arc::default(), writes }
    }

    /// The API server's clock, asked for when nothing is known of it.
    ///
    /// # Errors
    /// When there is no answer, or one without a date.
    pub async fn clock(&self) -> kube::Result<Timestamp> {
        if let Some(now) = self.clock.now() {
            return Ok(now);
        }
        self.send(Call { method: Method::GET, path: "/version".to_owned(), body: None }).await?.check()?;
        self.clock.now().ok_or_else(|| {
            kube::Error::Service("the API server's answers have no Date header".to_owned().into())
        })
    }

    /// Creates the window.
    ///
    /// # Errors
    /// As the API server refuses it.
    pub async fn create(&self, namespace: &Arc<str>, window: &MigrationWindow) -> kube::Result<Opened> {
        let body = serde_json::to_vec(window).map_err(kube::Error::SerdeError)?;
        let call = Call { method: Method::POST, path: windows(namespace), body: Some((JSON, body)) };
        let write = async { self.send(call).await?.decode::<MigrationWindow>() };
        let made = self.writes.record(names::MIGRATION_WINDOWS, "create", write).await?;
        Ok(opened(namespace, made))
    }

    /// The window that exists, and what the API server's clock says.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn window(
        &self,
        namespace: &str,
    ) -> kube::Result<Option<(MigrationWindow, Option<Timestamp>)>> {
        let path = format!("{}/{}", windows(namespace), names::WINDOW_NAME);
        let reply = self.send(Call { method: Method::GET, path, body: None }).await?;
        if reply.code == 404 {
            return Ok(None);
        }
        Ok(Some((reply.decode()?, reply.date)))
    }

    /// All windows of the cluster.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn all_windows(&self) -> kube::Result<Vec<MigrationWindow>> {
        let path = format!("/apis/{}/{}/{}", names::OWN_GROUP, names::OWN_VERSION, names::MIGRATION_WINDOWS);
        let reply = self.send(Call { method: Method::GET, path, body: None }).await?;
        Ok(reply.decode::<List<MigrationWindow>>()?.items)
    }

    /// Deletes exactly this window. One that is gone, or another one of its name, is as good.
    ///
    /// # Errors
    /// When nobody knows whether it is gone.
    pub async fn delete(&self, namespace: &str, uid: &str, version: &str) -> kube::Result<()> {
        let body = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": { "uid": uid, "resourceVersion": version },
        });
        let path = format!("{}/{}", windows(namespace), names::WINDOW_NAME);
        let body = Some((JSON, body.to_string().into_bytes()));
        let call = Call { method: Method::DELETE, path, body };
        let write = async {
            let reply = self.send(call).await?;
            if matches!(reply.code, 404 | 409) { Ok(()) } else { reply.check() }
        };
        self.writes.record(names::MIGRATION_WINDOWS, "delete", write).await
    }

    /// All quotas of a namespace, not from a cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn quotas<T: serde::de::DeserializeOwned>(&self, namespace: &str) -> kube::Result<Vec<T>> {
        let reply = self.send(Call { method: Method::GET, path: quotas(namespace), body: None }).await?;
        Ok(reply.decode::<List<T>>()?.items)
    }

    /// One quota, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn quota<T: serde::de::DeserializeOwned>(
        &self,
        namespace: &str,
        name: &str,
    ) -> kube::Result<Option<T>> {
        let path = format!("{}/{name}", quotas(namespace));
        let reply = self.send(Call { method: Method::GET, path, body: None }).await?;
        if reply.code == 404 { Ok(None) } else { reply.decode().map(Some) }
    }

    /// What may grant a namespace something, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn budget(&self, namespace: &str) -> kube::Result<BudgetWires> {
        let own = format!("/apis/{}/{}", names::OWN_GROUP, names::OWN_VERSION);
        let mtq = format!("/apis/{}/{}/namespaces/{namespace}", names::MTQ_GROUP, names::MTQ_VERSION);
        let get = |path| self.send(Call { method: Method::GET, path, body: None });
        let (vmmrqs, policies, namespace) = futures::try_join!(
            get(format!("{mtq}/{}", names::VMMRQS)),
            get(format!("{own}/{}", names::HEADROOM_POLICIES)),
            get(format!("/api/v1/namespaces/{namespace}")),
        )?;
        Ok(BudgetWires {
            vmmrqs: vmmrqs.decode::<List<VmmrqWire>>()?.items,
            policies: policies.decode::<List<HeadroomPolicyWire>>()?.items,
            namespace: namespace.decode()?,
        })
    }

    /// A migration, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn migration(&self, namespace: &str, name: &str) -> kube::Result<Option<MigrationWire>> {
        let path = format!("{MIGRATIONS}/{namespace}/virtualmachineinstancemigrations/{name}");
        let reply = self.send(Call { method: Method::GET, path, body: None }).await?;
        if reply.code == 404 { Ok(None) } else { reply.decode().map(Some) }
    }

    /// Patches the status of a quota. `raise`: with a limit within which the API server has to be done.
    ///
    /// # Errors
    /// As the API server refuses it; 422 when a test of the patch fails.
    pub async fn patch_quota_status<T: serde::de::DeserializeOwned>(
        &self,
        namespace: &str,
        name: &str,
        patch: &serde_json::Value,
        raise: bool,
    ) -> kube::Result<T> {
        let query = if raise { RAISE_TIME } else { "" };
        let path = format!("{}/{name}/status{query}", quotas(namespace));
        let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
        let call = Call { method: Method::PATCH, path, body: Some((JSON_PATCH, body)) };
        let write = async { self.send(call).await?.decode() };
        self.writes.record("resourcequotas/status", "patch", write).await
    }

    async fn send(&self, call: Call) -> kube::Result<Reply> {
        let reply = send(&self.client, call, DEADLINE).await?;
        self.clock.observe(reply.date);
        Ok(reply)
    }
}

/// How long a lock still holds after an answer with this date, which may be up to a second old.
pub fn left(until: Timestamp, date: Option<Timestamp>) -> Duration {
    let Some(date) = date else { return Duration::ZERO };
    let left = until.duration_since(date) - SignedDuration::from_secs(1);
    Duration::try_from(left).unwrap_or_default()
}

/// What is known of a window from its object.
pub fn opened(namespace: &Arc<str>, window: MigrationWindow) -> Opened {
    Opened {
        namespace: Arc::clone(namespace),
        uid: window.metadata.uid.unwrap_or_default(),
        version: window.metadata.resource_version.unwrap_or_default(),
        nonce: window.spec.nonce,
        until: window.spec.until.0,
    }
}

pub(crate) fn windows(namespace: &str) -> String {
    let (group, version, plural) = (names::OWN_GROUP, names::OWN_VERSION, names::MIGRATION_WINDOWS);
    format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
}

fn quotas(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/resourcequotas")
}
