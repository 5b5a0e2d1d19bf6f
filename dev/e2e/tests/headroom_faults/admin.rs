//! Somebody changes something while a request of the window is on its way: each request, one after the other.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use sluice_e2e::tenant::{amount, used};
use sluice_testbed::kubevirt::Migration;
use sluice_testbed::proxy::Action;
use sluice_testbed::wait;
use tokio::sync::Notify;

use crate::gate::Gate;
use crate::scene::{Scene, delete_filler};
use crate::steps::{Step, writes_of_a_window};
use crate::world;

const SOON: Duration = Duration::from_secs(90);

/// Starts a migration and does something while this request is held back.
async fn meanwhile(scene: &Scene, gate: &Gate, step: &Step, act: impl Future<Output = ()>) -> Migration {
    let go = Arc::new(Notify::new());
    let rule = step.rule(scene.tenant.name(), Action::HoldUntil(Arc::clone(&go))).times(1);
    let held = gate.proxy.add(rule);
    let migration = scene.vm.migrate().await.unwrap();
    held.wait_applied(1, SOON).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
    act.await;
    gate.proxy.remove(&held);
    go.notify_one();
    migration
}

#[derive(Clone, Copy, Debug)]
enum Edit {
    Enlarge,
    Lower,
    Delete,
    Recreate,
}

impl Edit {
    const ALL: [Self; 4] = [Self::Enlarge, Self::Lower, Self::Delete, Self::Recreate];

    async fn make(self, scene: &Scene) {
        match self {
            Self::Enlarge => scene.set_spec("a", &json!({"hard": {"requests.memory": "100Gi"}})).await,
            Self::Lower => scene.set_spec("a", &json!({"hard": {"requests.memory": "1Mi"}})).await,
            Self::Delete => scene.delete_quota("a").await,
            Self::Recreate => {
                scene.delete_quota("a").await;
                scene.create_quota("a", &scene.spec("a")).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_edits_deletes_or_recreates_the_quota_at_each_write() {
    let (world, steps) = (world::shared().await, writes_of_a_window().await);
    let scenes = join_all(Edit::ALL.map(|_| Scene::unlimited(world.bed, "edit"))).await;
    let gate = &Gate::of(world, &scenes.iter().collect::<Vec<_>>()).await;
    let steps = &steps;
    let edits = Edit::ALL.iter().zip(&scenes).map(|(edit, scene)| async move {
        for step in steps {
            let migration = meanwhile(scene, gate, step, edit.make(scene)).await;
            scene.through(&migration).await;
            scene.reset().await;
        }
    });
    join_all(edits).await;
}

/// With the budget gone, the target may be in already or be refused; with the budget back, it gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_withdrawn_at_each_write() {
    let (world, steps) = (world::shared().await, writes_of_a_window().await);
    let (granted, selected) =
        tokio::join!(Scene::full(world.bed, "vmmrq"), Scene::unlimited(world.bed, "policy"));
    granted.grant().await;
    let gate = Gate::of(world, &[&granted, &selected]).await;
    let by_vmmrq = async {
        for step in &steps {
            let migration = meanwhile(&granted, &gate, step, granted.withdraw()).await;
            granted.tenant.until_clear().await;
            granted.grant().await;
            granted.through(&migration).await;
            granted.reset().await;
        }
    };
    let by_policy = async {
        for step in &steps {
            let migration = meanwhile(&selected, &gate, step, selected.delete_policy()).await;
            selected.tenant.until_clear().await;
            selected.tenant.unlimited().await;
            selected.through(&migration).await;
            selected.reset().await;
        }
    };
    tokio::join!(by_vmmrq, by_policy);
}

/// A pod ends, kube-controller-manager counts anew and writes `status.hard` as the spec says, raised or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_manager_counts_anew_at_each_write() {
    let (world, steps) = (world::shared().await, writes_of_a_window().await);
    let scene = Scene::with_fillers(world.bed, "recount", steps.len()).await;
    scene.tenant.unlimited().await;
    let gate = Gate::of(world, &[&scene]).await;
    for (n, step) in steps.iter().enumerate() {
        let full = scene.tenant.quotas.get("a").await.unwrap();
        let recount = async {
            let before = amount(&used(&scene.tenant.quotas.get("a").await.unwrap()), "requests.memory");
            delete_filler(&scene.tenant, n).await;
            let counted = |quota: &_| amount(&used(quota), "requests.memory") < before;
            scene.tenant.until_quota("a", "the pod to be gone", counted).await;
        };
        let migration = meanwhile(&scene, &gate, step, recount).await;
        scene.through(&migration).await;
        scene.vm.until_alone().await.unwrap();
        // The next one finds the quota full again, by as much as the pod took.
        let one = used(&full);
        let alone = |quota: &_| amount(&used(quota), "requests.memory") < amount(&one, "requests.memory");
        let left = scene.tenant.until_quota("a", "one pod's usage", alone).await;
        let spec = json!({ "hard": used(&left) });
        scene.set_spec("a", &spec).await;
        scene.tenant.until_clear().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_namespace_is_deleted_at_each_write() {
    let (world, steps) = (world::shared().await, writes_of_a_window().await);
    let scenes = join_all(steps.iter().map(|_| Scene::unlimited(world.bed, "doomed"))).await;
    let survivor = Scene::unlimited(world.bed, "survivor").await;
    let gate = &Gate::of(world, &scenes.iter().chain([&survivor]).collect::<Vec<_>>()).await;
    let namespaces: &Api<Namespace> = &Api::all(world.bed.admin().unwrap());
    let ends = steps.iter().zip(&scenes).map(|(step, scene)| async move {
        let name = scene.tenant.name();
        let delete = async {
            namespaces.delete(name, &DeleteParams::default()).await.unwrap();
        };
        meanwhile(scene, gate, step, delete).await;
        let gone = |found: Option<&Namespace>| found.is_none();
        wait::wait_for(namespaces, name, SOON, "the namespace to be gone", gone).await.unwrap();
    });
    join_all(ends).await;
    survivor.migrate_through().await;
    assert_eq!(survivor.tenant.rejected_attempts().await, 0);
}
