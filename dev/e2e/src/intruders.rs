//! A tenant with `edit` in a namespace that takes what room it finds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_testbed::{Identity, wait};
use tokio::task::JoinHandle;

use crate::call;
use crate::objects::from_json;
use crate::tenant::{SOON, Tenant};

/// How many loops a flood has.
const LOOPS: usize = 20;

/// A pod that would fit into what a migration needs.
#[must_use]
pub fn intruder(metadata: Value) -> Pod {
    from_json(json!({
        "metadata": metadata,
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "main", "image": "none",
                "resources": { "requests": { "memory": "50Mi" }, "limits": { "memory": "100Mi" } },
            }],
        },
    }))
}

/// Such a pod that waits for a node for ever: those of the simulated ones do not support that a pod grows.
#[must_use]
pub fn waiting_intruder(metadata: Value) -> Pod {
    let mut pod = intruder(metadata);
    if let Some(spec) = pod.spec.as_mut() {
        spec.node_selector = Some([("no".to_owned(), "node".to_owned())].into());
    }
    pod
}

/// What makes an intruder grow, within its limits.
#[must_use]
pub fn growth() -> Value {
    json!({ "spec": { "containers": [{
        "name": "main", "resources": { "requests": { "memory": "90Mi" } },
    }]}})
}

/// An account with `edit` in the tenant's namespace.
pub async fn editor(tenant: &Tenant<'_>) -> Identity {
    tenant.bed.tenant(&tenant.namespace).await.unwrap()
}

/// Gives an account more rights in the tenant's namespace; returns when they are in force.
pub async fn grant(tenant: &Tenant<'_>, who: &Identity, group: &str, resource: &str) {
    let name = format!("{}-more", resource.replace('/', "-"));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": name, "namespace": tenant.name() },
        "rules": [{ "apiGroups": [group], "resources": [resource], "verbs": ["*"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": tenant.name() },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who.user() }],
    });
    tenant.bed.apply_objects([role, binding]).await.unwrap();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "namespace": tenant.name(), "verb": "patch", "group": group,
            "resource": resource, "subresource": subresource,
        }},
    });
    let client = who.client().unwrap();
    let allowed = || async {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = call::post(&client, path, &review).await.ok()?;
        (answer.body["status"]["allowed"] == true).then_some(())
    };
    wait::eventually(SOON, allowed, "the right to be in force").await.unwrap();
}

/// What the loops of a flood met.
#[derive(Debug, Default)]
pub struct Tally {
    tried: AtomicUsize,
    let_in: AtomicUsize,
    over_quota: AtomicUsize,
    locked_out: AtomicUsize,
}

impl Tally {
    /// How many pods were created.
    pub fn let_in(&self) -> usize {
        self.let_in.load(Ordering::SeqCst)
    }

    /// How many pods a quota refused.
    pub fn over_quota(&self) -> usize {
        self.over_quota.load(Ordering::SeqCst)
    }
}

/// Twenty loops that create pods as fast as they can.
pub struct Flood {
    over: Arc<AtomicBool>,
    tally: Arc<Tally>,
    loops: Vec<JoinHandle<()>>,
}

impl Flood {
    /// Starts the loops. What gets in is deleted at once.
    #[must_use]
    pub fn start(tenant: &Tenant<'_>, who: &Identity) -> Self {
        Self::of_loops(tenant, who, LOOPS)
    }

    /// As [`Self::start`], with so many loops.
    #[must_use]
    pub fn of_loops(tenant: &Tenant<'_>, who: &Identity, loops: usize) -> Self {
        let (over, tally) = (Arc::<AtomicBool>::default(), Arc::<Tally>::default());
        let pods: Api<Pod> = Api::namespaced(who.client().unwrap(), tenant.name());
        let loops = (0..loops)
            .map(|_| tokio::spawn(create_pods(pods.clone(), Arc::clone(&over), Arc::clone(&tally))))
            .collect();
        Self { over, tally, loops }
    }

    pub async fn end(mut self) -> Arc<Tally> {
        self.over.store(true, Ordering::SeqCst);
        for done in join_all(std::mem::take(&mut self.loops)).await {
            done.unwrap();
        }
        Arc::clone(&self.tally)
    }
}

impl Drop for Flood {
    /// A test that fails leaves the machine to the others.
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

async fn create_pods(pods: Api<Pod>, over: Arc<AtomicBool>, tally: Arc<Tally>) {
    let pod = intruder(json!({ "generateName": "intruder-" }));
    let add = |count: &AtomicUsize| count.fetch_add(1, Ordering::SeqCst);
    while !over.load(Ordering::SeqCst) {
        add(&tally.tried);
        match pods.create(&PostParams::default(), &pod).await {
            Ok(created) => {
                add(&tally.let_in);
                let name = created.metadata.name.unwrap();
                pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
            }
            Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => {
                add(&tally.over_quota);
            }
            Err(kube::Error::Api(status)) if status.message.contains("is reserved for the target pod") => {
                add(&tally.locked_out);
            }
            // Throttled, or out of luck with the quota's version: both may be tried again.
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 429 | 500) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
