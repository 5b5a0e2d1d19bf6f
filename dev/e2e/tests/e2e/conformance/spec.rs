//! The cluster of these tests, and what upstream's helpers do:
//! its standard quota, its pods, and when it takes a pod for gated.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota as Arq, names};
use sluice_e2e::call::{JSON, Response, call, post};
use sluice_e2e::objects::{from_json, is_held};
use sluice_e2e::{Running, upstream};
use sluice_testbed::{Bed, wait};
use tokio::sync::OnceCell;

use crate::context::{SOON, used_of};
use crate::team::Team;

pub const ARQ_COUNT: &str = "count/applicationawareresourcequotas.aaq.kubevirt.io";
pub const DONGLES: &str = "requests.example.com/dongle";
pub const GOLD_CLAIMS: &str = "gold.storageclass.storage.k8s.io/persistentvolumeclaims";
pub const GOLD_STORAGE: &str = "gold.storageclass.storage.k8s.io/requests.storage";
/// The name of most quotas of upstream's suite.
pub const QUOTA: &str = "test-quota";

/// Upstream's standard quota.
pub const STANDARD: &[(&str, &str)] = &[
    ("pods", "5"),
    ("services", "10"),
    ("services.nodeports", "1"),
    ("services.loadbalancers", "1"),
    ("replicationcontrollers", "10"),
    ("resourcequotas", "2"),
    ("cpu", "1"),
    ("memory", "500Mi"),
    ("configmaps", "10"),
    ("secrets", "10"),
    ("persistentvolumeclaims", "10"),
    ("requests.storage", "10Gi"),
    ("ephemeral-storage", "50Gi"),
    (GOLD_CLAIMS, "10"),
    (GOLD_STORAGE, "10Gi"),
    ("count/replicasets.apps", "5"),
    (ARQ_COUNT, "2"),
    (DONGLES, "3"),
];

pub type Amounts<'a> = &'a [(&'a str, &'a str)];

/// A cluster as upstream's suite expects it.
pub async fn cluster() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(upstream::bed_options()).await.unwrap();
        upstream::running(bed).await.unwrap()
    };
    SHARED.get_or_init(start).await
}

/// A pod that runs nowhere, with these requests and limits.
pub fn pod(name: &str, requests: Amounts<'_>, limits: Amounts<'_>) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "x-test.k8s.io/unsatisfiable": "not-schedulable" },
            "containers": [{
                "name": "pause", "image": "busybox",
                "resources": { "requests": amounts(requests), "limits": amounts(limits) },
            }],
        },
    })
}

pub fn amounts(amounts: Amounts<'_>) -> Value {
    Value::Object(amounts.iter().map(|(key, amount)| ((*key).to_owned(), json!(amount))).collect())
}

/// As upstream's suite reads it from the pod's conditions.
fn is_gated(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let says = |condition: &PodCondition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("SchedulingGated")
    };
    conditions.iter().any(says)
}

/// A namespace of one spec.
pub struct Spec {
    pub team: Team,
}

impl Spec {
    pub async fn new(name: &str) -> Self {
        Self { team: Team::with(cluster().await.bed, name, &[]).await }
    }

    /// With the standard quota and these limits in place of its own; returns when it is counted.
    pub async fn standard(name: &str, other: Amounts<'_>) -> Self {
        let spec = Self::new(name).await;
        let kept = STANDARD.iter().filter(|(key, _)| other.iter().all(|(changed, _)| changed != key));
        let hard: Vec<_> = kept.chain(other).copied().collect();
        spec.team.quota(QUOTA, &hard).await;
        spec.until_used(QUOTA, &[(ARQ_COUNT, "1"), ("pods", "0")]).await;
        spec
    }

    /// A quota with any spec.
    pub async fn quota(&self, name: &str, spec: Value) {
        let quota: Arq = from_json(json!({
            "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
            "metadata": { "name": name }, "spec": spec,
        }));
        self.team.quotas.create(&PostParams::default(), &quota).await.unwrap();
        self.until_used(name, &[("pods", "0")]).await;
    }

    /// Where objects of the namespace are, `api/v1/services` for example.
    pub fn path(&self, resource: &str) -> String {
        let (api, resource) = resource.rsplit_once('/').unwrap();
        format!("/{api}/namespaces/{}/{resource}", self.team.namespace.name)
    }

    pub async fn post(&self, resource: &str, object: &Value) -> Response {
        post(&self.team.client, &self.path(resource), object).await.unwrap()
    }

    pub async fn pod(&self, pod: &Value) {
        let answer = self.team.create(pod).await;
        assert!(answer.is_ok(), "{pod}: {answer:?}");
    }

    /// Deletes an object and its dependents.
    pub async fn delete(&self, resource: &str, name: &str) {
        let path = format!("{}/{name}?propagationPolicy=Background", self.path(resource));
        let client = &self.team.client;
        let answer = call(client, http::Method::DELETE, &path, JSON, &json!({})).await.unwrap();
        assert!(answer.is_ok(), "{resource} {name}: {answer:?}");
    }

    pub async fn delete_pod(&self, name: &str) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.team.pods.delete(name, &now).await.unwrap();
    }

    /// Waits until the status says all of this.
    pub async fn until_used(&self, quota: &str, used: Amounts<'_>) {
        let says = |quota: Option<&Arq>| {
            used.iter().all(|(key, amount)| used_of(quota, key).as_deref() == Some(amount))
        };
        let what = format!("used to be {used:?}");
        wait::wait_for(&self.team.quotas, quota, SOON, &what, says).await.unwrap();
    }

    /// What the status says now. Enough once a pod is not gated any more: it is charged first.
    pub async fn assert_used(&self, quota: &str, used: Amounts<'_>) {
        let found = self.team.quotas.get(quota).await.unwrap();
        for (key, amount) in used {
            assert_eq!(used_of(Some(&found), key).as_deref(), Some(*amount), "{quota}: {key}");
        }
    }

    /// Waits until the pod was decided on, held by this quota and told so, and is gated still.
    pub async fn until_gated(&self, name: &str, quota: &str) {
        let events: Api<Event> = Api::namespaced(self.team.client.clone(), &self.team.namespace.name);
        let told = || async {
            let events = events.list(&ListParams::default()).await.ok()?;
            let is_told = |event: &Event| {
                let regarding = event.regarding.as_ref().and_then(|pod| pod.name.as_deref());
                let note = event.note.as_deref().unwrap_or_default();
                regarding == Some(name) && note.starts_with(&format!("exceeded quota: {quota}, "))
            };
            events.items.iter().any(is_told).then_some(())
        };
        wait::eventually(SOON, told, &format!("an event that {quota} holds {name}")).await.unwrap();
        let pod = self.team.pods.get(name).await.unwrap();
        assert!(is_gated(&pod) && is_held(&pod), "{pod:?}");
    }

    /// Waits until the scheduler has looked at the pod.
    pub async fn until_not_gated(&self, name: &str) {
        let free = |pod: Option<&Pod>| {
            pod.is_some_and(|pod| !is_gated(pod) && !is_held(pod) && pod.status.is_some())
        };
        let what = "the pod not to be gated";
        wait::wait_for(&self.team.pods, name, SOON, what, free).await.unwrap();
    }
}
