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
use sluice_runtime::request::{Built, Reply, objects, send, send_at_most};

/// Limit for one request.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// Reads what sessions rest on.
pub struct Requests {
    client: Client,
    pub(crate) clock: Arc<ServerClock>,
}

/// So many objects are asked for at once. Tenants may make each as large as etcd takes, so the answer is bounded too: a
/// larger one is asked for in smaller pages, of which the smallest fits. A page becomes records before the next one is read.
const PAGE: u32 = 256;
const MOST_PAGE_BYTES: usize = 12 << 20;

#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
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
        self.list::<ResourceQuota, _, _>(namespace, Clone::clone).await
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
        futures::try_join!(
            self.list::<VmiWire, VmiWire, _>(namespace, Clone::clone),
            self.list::<VmimWire, VmimWire, _>(namespace, Clone::clone),
        )
    }

    /// All pods of a namespace, not from a cache.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn pods(&self, namespace: &str) -> kube::Result<Vec<LauncherRecord>> {
        self.list::<Pod, PodWire, _>(namespace, LauncherRecord::read).await
    }

    /// What is kept of the objects of kind `K` in a namespace, each of them read as `T`.
    async fn list<K, T, R>(&self, namespace: &str, keep: impl Fn(&T) -> R) -> kube::Result<Vec<R>>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let (mut all, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
        loop {
            let request = objects::<K>(Some(namespace)).list(&page);
            let reply = send_at_most(&self.client, request, DEADLINE, MOST_PAGE_BYTES).await?;
            let Some(reply) = reply else {
                let smaller = page.limit.unwrap_or(PAGE) / 8;
                if smaller == 0 {
                    return Err(kube::Error::Service("an object is larger than an API server takes".into()));
                }
                page.limit = Some(smaller);
                continue;
            };
            self.clock.observe(reply.date);
            let list: List<T> = reply.decode()?;
            all.extend(list.items.iter().map(&keep));
            match list.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => page.continue_token = Some(next),
                None => return Ok(all),
            }
        }
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
    use serde_json::json;

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
            "/api/v1/namespaces/ns/resourcequotas?&limit=256",
            "/api/v1/namespaces/ns/resourcequotas/one",
            &format!("{vmmrqs}/one"),
            &format!("{policies}/one"),
            "/api/v1/namespaces/one",
            kubevirt,
            "/api/v1/namespaces/ns/pods?&limit=256",
            "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances?&limit=256",
            "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstancemigrations?&limit=256",
        ];
        assert_eq!(*asked.lock(), expected);
    }

    /// Pods that are as large as etcd takes are read a few at a time, each once.
    #[tokio::test]
    async fn what_a_tenant_makes_large_is_read_in_small_pages() {
        const PODS: usize = 100;
        let pages = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&pages);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let value =
                |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.parse::<usize>().ok());
            let (from, limit) = (value("continue=").unwrap_or(0), value("limit=").unwrap());
            let to = (from + limit).min(PODS);
            let pod = |number: usize| {
                let note = "x".repeat(1_400_000);
                let metadata = json!({ "name": format!("pod-{number}"), "annotations": { "note": note } });
                json!({ "metadata": metadata, "spec": { "containers": [] } })
            };
            let next = if to < PODS { to.to_string() } else { String::new() };
            let items: Vec<_> = (from..to).map(pod).collect();
            log.lock().push(items.len());
            let body = json!({ "metadata": { "continue": next }, "items": items }).to_string();
            async move { Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes()))) }
        });
        let requests = Requests::new(Client::new(service, "default"), Arc::default());
        let names: Vec<_> = requests.pods("ns").await.unwrap().iter().map(|pod| pod.name.clone()).collect();
        let expected: Vec<Arc<str>> = (0..PODS).map(|number| format!("pod-{number}").into()).collect();
        assert_eq!(names, expected);
        let pages = pages.lock();
        assert_eq!(pages[..3], [100, 32, 4], "{pages:?}");
        assert!(pages[2..].iter().all(|page| *page <= 4), "{pages:?}");
    }
}
