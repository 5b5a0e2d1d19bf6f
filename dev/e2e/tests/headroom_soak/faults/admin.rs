//! An administrator edits the quota while a write of the opening is on its way: each write, one after the other.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use sluice_testbed::kubevirt::Migration;
use sluice_testbed::proxy::Action;
use tokio::sync::Notify;

use crate::faults::scene::Scene;
use crate::faults::steps::{Step, writes};
use crate::faults::world::{self, Shared};

const SOON: Duration = Duration::from_secs(90);

/// Starts a migration and does something while this write is held back.
async fn meanwhile(world: &Shared, scene: &Scene, step: &Step, act: impl Future<Output = ()>) -> Migration {
    let go = Arc::new(Notify::new());
    let rule = step.rule(scene.tenant.name(), Action::HoldUntil(Arc::clone(&go))).times(1);
    let held = world.gate.proxy.add(rule);
    let migration = scene.vm.migrate().await.unwrap();
    held.wait_applied(1, SOON).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
    act.await;
    world.gate.proxy.remove(&held);
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
    let (world, steps) = (world::shared().await, writes().await);
    let scenes = join_all(Edit::ALL.map(|_| Scene::unlimited(world.bed, "edit"))).await;
    let edits = Edit::ALL.iter().zip(&scenes).map(|(edit, scene)| async move {
        for step in steps {
            let migration = meanwhile(world, scene, step, edit.make(scene)).await;
            scene.through(&migration).await;
            scene.reset().await;
        }
    });
    join_all(edits).await;
}
