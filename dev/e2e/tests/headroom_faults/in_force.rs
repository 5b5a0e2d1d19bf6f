//! The admission policies are deleted, their API server is killed, Sluice is dead: nothing gets in, and it ends by the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::objects;
use sluice_e2e::tenant::{SOON, Tenant, hard, used};
use sluice_engine::headroom::MARK;
use sluice_operator::{InstallOptions, admission_policies};
use sluice_testbed::{Component, wait};
use tokio::task::JoinHandle;

use crate::account::Account;
use crate::gate::Gate;
use crate::scene::Scene;
use crate::world::{self, Turn, account, at_second, both, quotas_as};

/// A tenant who wants to use the room that is made for a target.
struct Intruder {
    tried: Arc<AtomicUsize>,
    entered: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Intruder {
    fn of(tenant: &Tenant<'_>) -> Self {
        let (tried, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, inside) = (Arc::clone(&tried), Arc::clone(&entered));
        let pods: Api<Pod> = Api::namespaced(at_second(tenant.bed), tenant.name());
        let mut pod = objects::pod("", &[("cpu", "1m"), ("memory", "1Mi")]);
        (pod.metadata.name, pod.metadata.generate_name) = (None, Some("intruder-".to_owned()));
        let task = tokio::spawn(async move {
            loop {
                let created = pods.create(&PostParams::default(), &pod).await;
                count.fetch_add(1, Ordering::SeqCst);
                inside.fetch_add(usize::from(created.is_ok()), Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        });
        Self { tried, entered, task }
    }

    fn stayed_outside(&self) {
        assert!(self.tried.load(Ordering::SeqCst) > 20);
        assert_eq!(self.entered.load(Ordering::SeqCst), 0, "other pods got in");
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn delete_policies(world: &Turn) {
    let (now, client) = (DeleteParams::default(), world.bed.admin().unwrap());
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    for name in [names::LOCK_POLICY, names::CHARGE_POLICY] {
        policies.delete(name, &now).await.unwrap();
        bindings.delete(name, &now).await.unwrap();
    }
}

/// As the operator does; none runs here, for it would put back the webhook configurations too.
async fn put_back_policies(world: &Turn) {
    let policies = admission_policies(&InstallOptions::default()).into_iter();
    let deleted = policies.filter(|each| [names::LOCK_POLICY, names::CHARGE_POLICY].contains(&each.name));
    world.bed.apply_objects(deleted.flat_map(|each| [each.policy, each.binding])).await.unwrap();
}

/// The policies count for the whole cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_are_deleted_under_migrations_let_nothing_in() {
    const SCENES: usize = 3;
    let world = world::pair().await;
    let bed = world.bed;
    let servers = both(bed);
    let gate =
        Gate::start(&world, &account(bed, names::WEBHOOK).await, &servers.each_ref().map(String::as_str))
            .await;
    let scenes = join_all((0..SCENES).map(|_| Scene::unlimited(bed, "deleted"))).await;
    gate.serve_all(bed).await;
    let intruders: Vec<Intruder> = scenes.iter().map(|scene| Intruder::of(&scene.tenant)).collect();
    for _ in 0..2 {
        let begin = join_all(scenes.iter().map(|scene| async { scene.vm.migrate().await.unwrap() }));
        let (migrations, ()) = tokio::join!(begin, delete_policies(&world));
        put_back_policies(&world).await;
        for (scene, migration) in scenes.iter().zip(&migrations) {
            scene.settled(migration).await;
            Account::of(bed, scene.tenant.name()).await.holds(2);
            scene.reset().await;
        }
    }
    intruders.iter().for_each(Intruder::stayed_outside);
}

/// A namespace with a pod and the quota `rq` of 4 pods, and how to mark it.
struct Marked {
    tenant: Tenant<'static>,
    webhook: Api<ResourceQuota>,
}

impl Marked {
    async fn new(world: &Turn, prefix: &str) -> Self {
        let tenant = Tenant::on(world.bed, prefix).await;
        tenant.pods.create(&PostParams::default(), &objects::pod("own", &[])).await.unwrap();
        tenant.quota("rq", json!({ "pods": "4" })).await;
        tenant.until_quota("rq", "the pod to be counted", |quota| used(quota)["pods"].0 == "1").await;
        let identity = account(world.bed, names::WEBHOOK).await;
        Self { webhook: quotas_as(&identity, &tenant.namespace), tenant }
    }

    /// Raises the pods as a webhook does that dies then.
    async fn raise(&self, seconds: i64) -> Timestamp {
        let end = Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap();
        let mark = (end.as_second() * 1000 + 7).to_string();
        let status = json!({ "hard": { "pods": "9", MARK: mark }, "used": { MARK: mark } });
        let params =
            PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch = Patch::Merge(json!({ "status": status }));
        self.webhook.patch_status("rq", &params, &patch).await.unwrap();
        end
    }
}

/// An API server that was killed lets no pod in before it enforces the marks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_starts_lets_nothing_into_a_marked_quota() {
    let world = world::pair().await;
    let bed = world.bed;
    let marked = Marked::new(&world, "starts").await;
    let pods: Api<Pod> = Api::namespaced(at_second(bed), marked.tenant.name());
    let pod = objects::pod("intruder", &[]);
    for _ in 0..2 {
        marked.raise(10).await;
        bed.stop(Component::SecondApiServer);
        bed.start_component(Component::SecondApiServer).unwrap();
        let denied = || async {
            let end = marked.raise(10).await;
            match pods.create(&PostParams::default(), &pod).await {
                Ok(_) => panic!("a pod got in while the mark was live, until {end}"),
                Err(kube::Error::Api(status))
                    if status.message.contains("exceeded quota: rq is reserved") =>
                {
                    Some(())
                }
                Err(_) => None,
            }
        };
        wait::eventually(SOON, denied, "the API server to deny pods").await.unwrap();
    }
    let end = marked.raise(1).await;
    let let_in = || async { pods.create(&PostParams::default(), &pod).await.ok().map(|_| Timestamp::now()) };
    let entered = wait::eventually(SOON, let_in, "the mark to be over").await.unwrap();
    assert!(entered >= end, "{entered} before {end}");
}

/// The codes of kube-controller-manager's writes of the status, with the times at which they were asked for.
async fn recounts(tenant: &Tenant<'_>) -> Vec<(Timestamp, u64)> {
    let events = tenant.bed.audit_events_with(tenant.name()).await.unwrap();
    let by_kcm = |event: &&Value| {
        event["objectRef"]["namespace"] == json!(tenant.name())
            && event["objectRef"]["resource"] == "resourcequotas"
            && event["user"]["username"] == json!(names::quota_controller_username())
    };
    let read = |event: &Value| {
        let received = event["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap();
        (received, event["responseStatus"]["code"].as_u64().unwrap())
    };
    events.iter().filter(by_kcm).map(read).collect()
}

/// The controller stands still, as if Sluice were dead everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_sluice_left_is_restored_by_kube_controller_manager_after_its_end() {
    let world = world::pair().await;
    let marked = Marked::new(&world, "dead").await;
    world.controller.program.pause();
    let end = marked.raise(4).await;
    let raised = Timestamp::now();
    // It counts again when a pod goes.
    marked.tenant.pods.delete("own", &DeleteParams::default().grace_period(0)).await.unwrap();
    let restored = |quota: &ResourceQuota| {
        hard(quota)["pods"].0 == "4" && hard(quota).len() == 1 && used(quota)["pods"].0 == "0"
    };
    let quota = marked.tenant.until_quota("rq", "to be restored", restored).await;
    world.controller.program.resume();
    assert!(!used(&quota).contains_key(MARK));
    let writes: Vec<_> = recounts(&marked.tenant).await.into_iter().filter(|(at, _)| *at > raised).collect();
    let (early, late): (Vec<_>, Vec<_>) = writes.into_iter().partition(|(at, _)| *at < end);
    assert!(!early.is_empty() && early.iter().all(|(_, code)| *code == 403), "{early:?}");
    assert!(late.iter().any(|(_, code)| *code == 200), "{late:?}");
}
