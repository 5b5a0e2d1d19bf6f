//! Many at once: not one attempt is refused.

use futures::future::join_all;
use serde_json::json;
use sluice_e2e::tenant::{Tenant, used};
use sluice_testbed::kubevirt::Vm;

use crate::faults::invariants::Invariants;
use crate::faults::scene::Scene;
use crate::faults::world;

const KEYS: [&str; 3] = ["requests.memory", "requests.cpu", "pods"];

async fn holds_without_refusal(tenant: &Tenant<'_>, raises: usize) {
    tenant.until_clear().await;
    let invariants = Invariants::of(tenant.bed, tenant.name()).await;
    invariants.holds(1);
    assert_eq!(tenant.rejected_attempts().await, 0, "{invariants:#?}");
    assert_eq!(invariants.raises_of("full"), raises, "{invariants:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_migrations_of_one_namespace_are_let_in_one_by_one() {
    let world = world::shared().await;
    let tenant = Tenant::on(world.bed, "crowd").await;
    let vms = join_all(["v0", "v1", "v2", "v3", "v4"].map(|name| tenant.vm(name))).await;
    tenant.full_quota("full", &KEYS).await;
    tenant.unlimited().await;
    let migrations = join_all(vms.iter().map(Vm::migrate)).await;
    for migration in migrations {
        migration.unwrap().until_succeeded().await.unwrap();
    }
    holds_without_refusal(&tenant, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_namespaces_have_migrations_at_once() {
    let world = world::shared().await;
    let scenes = join_all((0..10).map(|_| Scene::unlimited(world.bed, "ten"))).await;
    join_all(scenes.iter().map(Scene::migrate_through)).await;
    for scene in &scenes {
        assert_eq!(scene.tenant.rejected_attempts().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_quotas_that_are_in_the_way_are_raised() {
    let world = world::shared().await;
    let scene = Scene::unlimited(world.bed, "several").await;
    let tenant = &scene.tenant;
    tenant.quota("roomy", json!({"requests.memory": "100Gi", "pods": "100"})).await;
    let elsewhere = json!({"hard": {"pods": "0"}, "scopes": ["Terminating"]});
    tenant.quota_spec("elsewhere", elsewhere).await;
    let here = json!({"hard": {"pods": "1"}, "scopes": ["NotTerminating", "NotBestEffort"]});
    tenant.quota_spec("here", here).await;
    tenant.until_quota("here", "to count", |quota| used(quota).values().any(|used| used.0 == "1")).await;
    let invariants = scene.migrate_through().await;
    for (name, raises) in [("a", 1), ("b", 1), ("here", 1), ("roomy", 0), ("elsewhere", 0)] {
        assert_eq!(invariants.raises_of(name), raises, "{name}: {invariants:#?}");
    }
    assert_eq!(tenant.rejected_attempts().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained() {
    let world = world::shared().await;
    let kubevirt = world.bed.kubevirt().unwrap();
    let node = kubevirt.add_nodes(1).await.unwrap().remove(0);
    let tenants = join_all((0..3).map(|_| async {
        let tenant = Tenant::on(world.bed, "drain").await;
        let start = ["v0", "v1"].map(|name| tenant.kubevirt.vm(tenant.name(), name).node(&node).start());
        join_all(start).await.into_iter().for_each(|vm| drop(vm.unwrap()));
        tenant.full_quota("full", &KEYS).await;
        tenant.unlimited().await;
        tenant
    }))
    .await;
    let ours = |vm: &&Vm| tenants.iter().any(|tenant| tenant.name() == vm.namespace());
    let vms = kubevirt.drain(&node).await.unwrap();
    assert_eq!(vms.iter().filter(ours).count(), 6);
    for vm in &vms {
        vm.until_away_from(&node).await.unwrap();
    }
    for tenant in &tenants {
        holds_without_refusal(tenant, 2).await;
    }
}
