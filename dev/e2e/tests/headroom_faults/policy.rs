//! Somebody deletes the admission policy that puts windows in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use sluice_api::{MigrationWindow, names};
use sluice_e2e::tenant::{Tenant, own};
use sluice_e2e::{Installation, Setup, objects};
use sluice_testbed::kubevirt::Migration;
use sluice_testbed::proxy::{Action, FaultProxy, Rule, RuleId};
use sluice_testbed::{Bed, wait};
use tokio::task::JoinHandle;

use crate::account::Account;
use crate::gate::Gate;
use crate::scene::Scene;
use crate::steps::writes_of_a_controller;
use crate::stop::Stop;
use crate::world::{LEASE, World, controller_proxy};

const SOON: Duration = Duration::from_secs(60);
/// Between two attempts of somebody who wants in.
const PACE: Duration = Duration::from_millis(20);

/// A cluster whose controller keeps the policy as it is shipped, behind a proxy.
struct Kept {
    world: World,
    proxy: FaultProxy,
}

impl Kept {
    async fn start() -> Self {
        let bed: &'static Bed = Box::leak(Box::new(own().await));
        let setup = Setup { controller_args: LEASE.map(str::to_owned).to_vec(), without_webhook: true };
        let installation = Installation::apply(bed, setup).await.unwrap();
        let proxy = controller_proxy(bed).await;
        let controller = installation.controller_with(proxy.kubeconfig(), &[]).await.unwrap();
        installation.until_locking().await.unwrap();
        Self { world: World::of(bed, installation, controller), proxy }
    }

    /// Keeps the controller from putting anything back.
    fn forbid_putting_back(&self) -> RuleId {
        let rule = Rule::answer(503).unwrap().path("/validatingadmissionpolic").unwrap();
        self.proxy.add(rule.when(|request| request.is_write()))
    }

    async fn delete_policy(&self) {
        let (now, client) = (DeleteParams::default(), self.world.bed.admin().unwrap());
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
        policies.delete(names::WINDOW_POLICY, &now).await.unwrap();
        bindings.delete(names::WINDOW_POLICY, &now).await.unwrap();
    }
}

/// A namespace with a window that does not end: by it one sees whether windows are in force.
struct Lock(Tenant<'static>);

impl Lock {
    async fn in_force(bed: &'static Bed) -> Self {
        let lock = Self(Tenant::on(bed, "locked").await);
        lock.0.windows.create(&PostParams::default(), &window(names::WINDOW_NAME)).await.unwrap();
        lock.until(true).await;
        lock
    }

    async fn until(&self, in_force: bool) {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let probe = window(names::PROBE_NAME);
        let is = || async { (self.0.windows.create(&dry, &probe).await.is_err() == in_force).then_some(()) };
        wait::eventually(SOON, is, &format!("windows to be in force: {in_force}")).await.unwrap();
    }
}

fn window(name: &str) -> MigrationWindow {
    let until = Timestamp::from_second(Timestamp::now().as_second() + 3600).unwrap().to_string();
    objects::from_json(json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "MigrationWindow", "metadata": { "name": name },
        "spec": {
            "holder": "a test", "nonce": "in-force", "creator": "nobody", "until": until,
            "migration": { "name": "none", "uid": "none", "vmi": "none" },
        },
    }))
}

/// Somebody who wants to use the room that is made for a target.
struct Intruder {
    tried: Arc<AtomicUsize>,
    entered: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Intruder {
    fn of(scene: &Scene) -> Self {
        let (tried, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, inside) = (Arc::clone(&tried), Arc::clone(&entered));
        let pods: Api<Pod> = scene.tenant.pods.clone();
        let mut pod = objects::pod("", &[("cpu", "1m"), ("memory", "1Mi")]);
        (pod.metadata.name, pod.metadata.generate_name) = (None, Some("intruder-".to_owned()));
        let task = tokio::spawn(async move {
            loop {
                let created = pods.create(&PostParams::default(), &pod).await;
                count.fetch_add(1, Ordering::SeqCst);
                inside.fetch_add(usize::from(created.is_ok()), Ordering::SeqCst);
                tokio::time::sleep(PACE).await;
            }
        });
        Self { tried, entered, task }
    }

    fn stayed_outside(&self) {
        assert!(self.tried.load(Ordering::SeqCst) > 20);
        assert_eq!(self.entered.load(Ordering::SeqCst), 0, "somebody else's pods got in");
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How many migrations begin while the policy is gone.
const LATE: usize = 3;

/// At each write of a window, and before some. As long as the policy is gone nothing is raised that was not proven before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_is_deleted_at_each_write_of_a_window() {
    let kept = Kept::start().await;
    let bed = kept.world.bed;
    let steps = writes_of_a_controller(bed, &kept.proxy).await;
    let lock = Lock::in_force(bed).await;
    let late = join_all((0..LATE).map(|_| Scene::unlimited(bed, "late"))).await;
    let gate = Gate::of(&kept.world, &late.iter().collect::<Vec<_>>()).await;
    let scenes: Vec<(Scene, Migration)> =
        join_all(steps.iter().map(|_| Scene::rejected(bed, "policy"))).await;
    let stop = Stop::default();
    for (step, (scene, _)) in steps.iter().zip(&scenes) {
        stop.hold(&kept.proxy, scene.tenant.name(), step, Action::Pass);
    }
    // Those whose lock is not proven yet. Who has proven it may raise after the policy is gone.
    let early = steps.iter().zip(&scenes).filter(|(step, _)| step.is_before_proof());
    let unproven: Vec<&Scene> = early.map(|(_, (scene, _))| scene).chain(&late).collect();
    assert_eq!(unproven.len(), LATE + 2, "{steps:#?}");
    let intruders: Vec<Intruder> = unproven.iter().map(|scene| Intruder::of(scene)).collect();
    join_all(scenes.iter().map(|(scene, _)| scene.tenant.unlimited())).await;
    stop.until_all_stand().await;
    let forbidden = kept.forbid_putting_back();
    kept.delete_policy().await;
    lock.until(false).await;
    stop.let_go();
    let migrations = join_all(late.iter().map(|scene| async { scene.vm.migrate().await.unwrap() })).await;
    let told = || async { (gate.endings("not_proven").await >= LATE as u64).then_some(()) };
    wait::eventually(SOON, told, "locks without proof to be reported").await.unwrap();
    for scene in &unproven {
        let account = Account::of(bed, scene.tenant.name()).await;
        assert_eq!(account.raises(), 0, "{account:#?}");
    }
    kept.proxy.remove(&forbidden);
    lock.until(true).await;
    let all = late.iter().zip(&migrations).chain(scenes.iter().map(|(scene, migration)| (scene, migration)));
    join_all(all.map(|(scene, migration)| scene.through(migration))).await;
    intruders.iter().for_each(Intruder::stayed_outside);
}
