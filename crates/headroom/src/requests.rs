//! The requests of a session, each one call. Nothing here decides about quotas.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use kube::api::{GetParams, ListParams};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_api::{HeadroomPolicy, VirtualMachineMigrationResourceQuota};
use sluice_index::{
    BudgetWires, GrantNames, LauncherRecord, PodWire, ResourceQuotaWire, VmiWire, VmimRecord, VmimWire,
};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::request::{Built, Reply, objects, send};

/// Limit for one request.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// Reads what sessions rest on.
pub struct Requests {
    client: Client,
    pub(crate) clock: Arc<ServerClock>,
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
        let version = http::Request::get("/version").body(Vec::new());
        self.get(version.map_err(kube::core::request::Error::BuildRequest)).await?.check()?;
        self.clock.now().ok_or_else(|| {
            kube::Error::Service("the API server's answers have no Date header".to_owned().into())
        })
    }

    /// All quotas of a namespace, not from a cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn quotas(&self, namespace: &str) -> kube::Result<Vec<ResourceQuotaWire>> {
        self.list::<ResourceQuota, _>(Some(namespace), &ListParams::default()).await
    }

    /// One quota, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn quota(&self, namespace: &str, name: &str) -> kube::Result<Option<ResourceQuotaWire>> {
        self.find::<ResourceQuota, _>(Some(namespace), name).await
    }

    /// The objects of these names, not from a cache. Much faster than lists, which wait for the API server's cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn grants(&self, namespace: &str, asked: GrantNames) -> kube::Result<BudgetWires> {
        let vmmrqs = asked.vmmrqs.iter();
        let vmmrqs =
            vmmrqs.map(|name| self.find::<VirtualMachineMigrationResourceQuota, _>(Some(namespace), name));
        let policies = asked.policies.iter().map(|name| self.find::<HeadroomPolicy, _>(None, name));
        let (vmmrqs, policies, namespace) = futures::try_join!(
            try_join_all(vmmrqs),
            try_join_all(policies),
            self.find::<Namespace, _>(None, namespace),
        )?;
        let (vmmrqs, policies) = (vmmrqs.into_iter().flatten(), policies.into_iter().flatten());
        let (vmmrqs, policies) = (vmmrqs.collect(), policies.collect());
        Ok(BudgetWires { asked, vmmrqs, policies, namespace })
    }

    /// A migration, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn migration(&self, namespace: &str, name: &str) -> kube::Result<Option<VmimRecord>> {
        let wire = self.find::<VmimWire, VmimWire>(Some(namespace), name).await?;
        Ok(wire.as_ref().map(VmimRecord::read))
    }

    /// All virtual machines that run in a namespace, and all migrations, not from a cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn machines(&self, namespace: &str) -> kube::Result<(Vec<VmiWire>, Vec<VmimWire>)> {
        let all = ListParams::default();
        futures::try_join!(
            self.list::<VmiWire, VmiWire>(Some(namespace), &all),
            self.list::<VmimWire, VmimWire>(Some(namespace), &all),
        )
    }

    /// All pods of a namespace, not from a cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn pods(&self, namespace: &str) -> kube::Result<Vec<LauncherRecord>> {
        let pods: Vec<PodWire> = self.list::<Pod, _>(Some(namespace), &ListParams::default()).await?;
        Ok(pods.iter().map(LauncherRecord::read).collect())
    }

    /// The objects of kind `K`, read as `T`.
    async fn list<K, T>(&self, namespace: Option<&str>, which: &ListParams) -> kube::Result<Vec<T>>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        Ok(self.get(objects::<K>(namespace).list(which)).await?.decode::<List<T>>()?.items)
    }

    /// An object of kind `K`, read as `T`; `None` if it does not exist.
    async fn find<K, T>(&self, namespace: Option<&str>, name: &str) -> kube::Result<Option<T>>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let reply = self.get(objects::<K>(namespace).get(name, &GetParams::default())).await?;
        if reply.code == 404 { Ok(None) } else { reply.decode().map(Some) }
    }

    async fn get(&self, request: Built) -> kube::Result<Reply> {
        let reply = send(&self.client, request, DEADLINE).await?;
        self.clock.observe(reply.date);
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    /// An API server that has no object, and what it was asked for.
    fn empty() -> (Requests, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let code = if request.uri().path().ends_with("/one") { 404 } else { 200 };
            log.lock().push(request.uri().to_string());
            let body = Body::from(br#"{"items":[]}"#.to_vec());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        (Requests::new(Client::new(service, "default"), Arc::default()), asked)
    }

    #[tokio::test]
    async fn each_kind_is_asked_for_at_its_own_path() {
        let (requests, asked) = empty();
        assert!(requests.quotas("ns").await.unwrap().is_empty());
        assert!(requests.quota("ns", "one").await.unwrap().is_none());
        let names = GrantNames { vmmrqs: vec!["one".into()], policies: vec!["one".into()] };
        assert!(requests.grants("one", names).await.unwrap().policies.is_empty());
        assert!(requests.migration("ns", "one").await.unwrap().is_none());
        assert!(requests.pods("ns").await.unwrap().is_empty());
        assert!(requests.machines("ns").await.unwrap().0.is_empty());
        let kubevirt = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstancemigrations/one";
        let vmmrqs = "/apis/mtq.kubevirt.io/v1alpha1/namespaces/one/virtualmachinemigrationresourcequotas";
        let policies = "/apis/quota.sluice.dev/v1alpha1/headroompolicies";
        let expected = [
            "/api/v1/namespaces/ns/resourcequotas?",
            "/api/v1/namespaces/ns/resourcequotas/one",
            &format!("{vmmrqs}/one"),
            &format!("{policies}/one"),
            "/api/v1/namespaces/one",
            kubevirt,
            "/api/v1/namespaces/ns/pods?",
            "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances?",
            "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstancemigrations?",
        ];
        assert_eq!(*asked.lock(), expected);
    }
}
