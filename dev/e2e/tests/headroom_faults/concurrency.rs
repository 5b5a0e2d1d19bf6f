//! Many at once.

use futures::future::join_all;
use serde_json::json;
use sluice_e2e::tenant::{Tenant, hard, spec_hard, used};
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::{Migration, Vm};

use crate::account::Account;
use crate::gate::{Entry, Gate};
use crate::scene::{Scene, delete_filler, filler};
use crate::world::{self, limits};

/// Virtual machines with these names, and a full quota for them.
async fn crowd(bed: &'static Bed, names: &[&str], fillers: usize) -> (Tenant<'static>, Vec<Vm>) {
    let tenant = Tenant::on(bed, "crowd").await;
    for n in 0..fillers {
        filler(&tenant, n).await;
    }
    let vms = join_all(names.iter().map(|name| tenant.vm(name))).await;
    tenant.full_quota("full", &["requests.memory", "requests.cpu", "pods"]).await;
    tenant.unlimited().await;
    (tenant, vms)
}

async fn migrate_all(vms: &[Vm]) -> Vec<Migration> {
    join_all(vms.iter().map(|vm| async { vm.migrate().await.unwrap() })).await
}

async fn all_through(tenant: &Tenant<'_>, migrations: &[Migration]) -> Account {
    for migration in migrations {
        migration.until_succeeded().await.unwrap();
    }
    tenant.until_clear().await;
    let account = Account::of(tenant.bed, tenant.name()).await;
    account.holds();
    account
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_migrations_of_one_namespace_are_let_in_one_by_one() {
    let world = world::shared().await;
    let (tenant, vms) = crowd(world.bed, &["v0", "v1", "v2", "v3", "v4"], 0).await;
    let gate = Gate::behind(world, &[]).await;
    let entry = Entry::new(world.bed, gate.port, &[tenant.name()]);
    entry.in_force(world.bed, &[tenant.name()], std::slice::from_ref(&gate)).await;
    let migrations = migrate_all(&vms).await;
    let account = all_through(&tenant, &migrations).await;
    assert_eq!(account.raises_of("full"), 5, "{account:#?}");
    assert_eq!(tenant.rejected_attempts().await, 0);
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
    let _gate = Gate::of(world, &[&scene]).await;
    let account = scene.migrate_through().await;
    for (name, raises) in [("a", 1), ("b", 1), ("here", 1), ("roomy", 0), ("elsewhere", 0)] {
        assert_eq!(account.raises_of(name), raises, "{name}: {account:#?}");
    }
    assert_eq!(tenant.rejected_attempts().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_namespaces_have_windows_at_once() {
    let world = world::shared().await;
    let scenes = join_all((0..10).map(|_| Scene::unlimited(world.bed, "ten"))).await;
    let _gate = Gate::of(world, &scenes.iter().collect::<Vec<_>>()).await;
    join_all(scenes.iter().map(Scene::migrate_through)).await;
    for scene in &scenes {
        assert_eq!(scene.tenant.rejected_attempts().await, 0);
    }
}

/// Each webhook is asked for its own virtual machines of one namespace: a load balancer could send them so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_let_targets_of_one_namespace_in() {
    let world = world::shared().await;
    let (tenant, vms) = crowd(world.bed, &["a0", "b0", "a1", "b1", "a2", "b2"], 0).await;
    let mut gates = Vec::new();
    for prefix in ["a", "b"] {
        let gate = Gate::behind(world, &[]).await;
        let entry = Entry::new(world.bed, gate.port, &[tenant.name()]).only(prefix);
        entry.in_force(world.bed, &[tenant.name()], std::slice::from_ref(&gate)).await;
        gates.push(gate);
    }
    let migrations = migrate_all(&vms).await;
    let account = all_through(&tenant, &migrations).await;
    assert_eq!(account.holders(), 2, "{account:#?}");
    assert_eq!(tenant.rejected_attempts().await, 0);
    for gate in &gates {
        assert_eq!(gate.endings("entered").await, 3);
    }
}

/// Pods of the namespace end all the time: kube-controller-manager counts anew and puts `status.hard` back, whatever it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_migrations_in_a_storm_of_replenishments() {
    const FILLERS: usize = 60;
    let world = world::shared().await;
    let names: Vec<String> = (0..10).map(|n| format!("v{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (tenant, vms) = crowd(world.bed, &names, FILLERS).await;
    let gate = Gate::behind(world, &[]).await;
    let entry = Entry::new(world.bed, gate.port, &[tenant.name()]);
    entry.in_force(world.bed, &[tenant.name()], std::slice::from_ref(&gate)).await;
    let storm = async {
        for n in 0..FILLERS {
            delete_filler(&tenant, n).await;
        }
    };
    let ((), migrations) = tokio::join!(storm, migrate_all(&vms));
    let account = all_through(&tenant, &migrations).await;
    assert!(account.raises() >= 1, "{account:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_under_kubevirts_own_limits() {
    let world = world::pair().await;
    limits(world.bed, 5, 2).await;
    let node = world.bed.kubevirt().unwrap().add_nodes(1).await.unwrap().remove(0);
    let mut tenants = Vec::new();
    for _ in 0..3 {
        let tenant = Tenant::on(world.bed, "drain").await;
        for name in ["v0", "v1"] {
            tenant.kubevirt.vm(tenant.name(), name).node(&node).start().await.unwrap();
        }
        tenant.full_quota("full", &["requests.memory", "requests.cpu", "pods"]).await;
        tenant.unlimited().await;
        tenants.push(tenant);
    }
    let names: Vec<&str> = tenants.iter().map(Tenant::name).collect();
    let gate = Gate::behind(&world, &[]).await;
    let servers = [world.bed.admin().unwrap(), world::at_second(world.bed)];
    Entry::new(world.bed, gate.port, &names)
        .in_force_at(world.bed, &servers, &names, std::slice::from_ref(&gate))
        .await;
    let kubevirt = world.bed.kubevirt().unwrap();
    let vms = kubevirt.drain(&node).await.unwrap();
    assert_eq!(vms.len(), 6);
    for vm in &vms {
        vm.until_away_from(&node).await.unwrap();
    }
    for tenant in &tenants {
        tenant.until_clear().await;
        let account = Account::of(world.bed, tenant.name()).await;
        account.holds();
        assert!(account.raises() >= 1);
        assert_eq!(tenant.rejected_attempts().await, 0);
        let quota = tenant.quotas.get("full").await.unwrap();
        assert_eq!(hard(&quota), spec_hard(&quota));
    }
    limits(world.bed, 100, 100).await;
}
