//! The requests of an session, each one call. Nothing here decides about quotas.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use http::Method;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_api::names;
use sluice_index::{HeadroomPolicyWire, NamespaceWire, PodWire, ResourceQuotaWire, VmimWire, VmmrqWire};
use sluice_runtime::raw::{Call, Reply, send};

use crate::clock::ServerClock;

/// Limit for one request.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces";

/// Reads what sessions rest on.
pub struct Requests {
    client: Client,
    pub(crate) clock: Arc<ServerClock>,
}

/// What a budget is made of.
#[derive(Clone, Debug)]
pub struct BudgetWires {
    /// The namespace's own grants.
    pub vmmrqs: Vec<VmmrqWire>,
    /// Policies.
    pub policies: Vec<HeadroomPolicyWire>,
    /// The namespace, by whose labels policies select.
    pub namespace: Option<NamespaceWire>,
}

/// Names of objects that grant something.
#[derive(Clone, Debug, Default)]
pub struct GrantNames {
    /// `VirtualMachineMigrationResourceQuota`s of the namespace.
    pub vmmrqs: Vec<Arc<str>>,
    /// `HeadroomPolicy`s.
    pub policies: Vec<Arc<str>>,
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    /// Requests of `client`.
    #[must_use]
    pub fn new(client: Client, clock: Arc<ServerClock>) -> Self {
        Self { client, clock }
    }

    /// The API server's clock, asked for when nothing is known of it.
    ///
    /// # Errors
    /// When there is no answer, or one without a date.
    pub async fn clock(&self) -> kube::Result<Timestamp> {
        if let Some(now) = self.clock.now() {
            return Ok(now);
        }
        self.get("/version".to_owned()).await?.check()?;
        self.clock.now().ok_or_else(|| {
            kube::Error::Service("the API server's answers have no Date header".to_owned().into())
        })
    }

    /// All quotas of a namespace, not from a cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn quotas(&self, namespace: &str) -> kube::Result<Vec<ResourceQuotaWire>> {
        self.list(quotas(namespace)).await
    }

    /// One quota, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn quota(&self, namespace: &str, name: &str) -> kube::Result<Option<ResourceQuotaWire>> {
        self.find(format!("{}/{name}", quotas(namespace))).await
    }

    /// Everything that may grant a namespace something, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn budget(&self, namespace: &str) -> kube::Result<BudgetWires> {
        let (vmmrqs, policies, namespace) = futures::try_join!(
            self.list(vmmrqs(namespace)),
            self.list(policies()),
            self.find(format!("/api/v1/namespaces/{namespace}")),
        )?;
        Ok(BudgetWires { vmmrqs, policies, namespace })
    }

    /// The objects of these names, not from a cache. Much faster than lists, which wait for the API server's cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn grants(&self, namespace: &str, names: &GrantNames) -> kube::Result<BudgetWires> {
        let vmmrqs = names.vmmrqs.iter().map(|name| self.find(format!("{}/{name}", vmmrqs(namespace))));
        let policies = names.policies.iter().map(|name| self.find(format!("{}/{name}", policies())));
        let (vmmrqs, policies, namespace) = futures::try_join!(
            try_join_all(vmmrqs),
            try_join_all(policies),
            self.find(format!("/api/v1/namespaces/{namespace}")),
        )?;
        let (vmmrqs, policies) = (vmmrqs.into_iter().flatten(), policies.into_iter().flatten());
        Ok(BudgetWires { vmmrqs: vmmrqs.collect(), policies: policies.collect(), namespace })
    }

    /// A migration, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn migration(&self, namespace: &str, name: &str) -> kube::Result<Option<VmimWire>> {
        self.find(format!("{KUBEVIRT}/{namespace}/virtualmachineinstancemigrations/{name}")).await
    }

    /// The pods of a virtual machine: launchers, and what KubeVirt created beside them.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn pods_of(&self, namespace: &str, machine_uid: &str) -> kube::Result<Vec<PodWire>> {
        let label = names::CREATED_BY_LABEL.replace('/', "%2F");
        self.list(format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}%3D{machine_uid}")).await
    }

    async fn list<T: DeserializeOwned>(&self, path: String) -> kube::Result<Vec<T>> {
        Ok(self.get(path).await?.decode::<List<T>>()?.items)
    }

    async fn find<T: DeserializeOwned>(&self, path: String) -> kube::Result<Option<T>> {
        let reply = self.get(path).await?;
        if reply.code == 404 { Ok(None) } else { reply.decode().map(Some) }
    }

    async fn get(&self, path: String) -> kube::Result<Reply> {
        let reply = send(&self.client, Call { method: Method::GET, path, body: None }, DEADLINE).await?;
        self.clock.observe(reply.date);
        Ok(reply)
    }
}

pub(crate) fn quotas(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/resourcequotas")
}

fn vmmrqs(namespace: &str) -> String {
    format!("/apis/{}/{}/namespaces/{namespace}/{}", names::MTQ_GROUP, names::MTQ_VERSION, names::VMMRQS)
}

fn policies() -> String {
    format!("/apis/{}/{}/{}", names::OWN_GROUP, names::OWN_VERSION, names::HEADROOM_POLICIES)
}
