//! Nothing is raised that not every API server is known to lock.

use std::time::Duration;

use sluice_api::names;
use sluice_testbed::{Component, wait};

use crate::account::Account;
use crate::gate::{Entry, Gate};
use crate::scene::Scene;
use crate::world::{self, World, account};

const SOON: Duration = Duration::from_secs(60);

/// A gate that proves locks at these API servers, asked by both.
async fn gate(world: &World, scene: &Scene, proven_at: &[&str]) -> Gate {
    let identity = account(world.bed, names::WEBHOOK).await;
    let args: Vec<String> = proven_at.iter().map(|url| format!("--api-server={url}")).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let gate = Gate::at(world.bed, &world.installation, &identity, &args).await;
    let servers = [world.bed.admin().unwrap(), world::at_second(world.bed)];
    let name = scene.tenant.name();
    let entry = Entry::new(world.bed, gate.port, &[name]);
    entry.in_force_at(world.bed, &servers, &[name], std::slice::from_ref(&gate)).await;
    gate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_is_proven_at_both_api_servers() {
    let world = world::pair().await;
    let scene = Scene::unlimited(world.bed, "both").await;
    let (first, second) = (world.bed.server_url(), world.bed.second_server_url());
    let _gate = gate(&world, &scene, &[&first, &second]).await;
    for _ in 0..5 {
        let account = scene.migrate_through().await;
        account.holds_with(2);
        scene.reset().await;
    }
    assert_eq!(scene.tenant.rejected_attempts().await, 0);
}

/// The first API server stands still; KubeVirt's controller and the webhook speak with the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_stands_still_lets_nothing_be_raised() {
    let world = world::pair().await;
    let scene = Scene::unlimited(world.bed, "still").await;
    let identity = account(world.bed, names::WEBHOOK).await;
    let identity = world.bed.at_second_server(&identity).unwrap();
    let (first, second) = (world.bed.server_url(), world.bed.second_server_url());
    let args = [format!("--api-server={first}"), format!("--api-server={second}")];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let gate = Gate::at(world.bed, &world.installation, &identity, &args).await;
    let servers = [world.bed.admin().unwrap(), world::at_second(world.bed)];
    let name = scene.tenant.name();
    let entry = Entry::new(world.bed, gate.port, &[name]);
    entry.in_force_at(world.bed, &servers, &[name], std::slice::from_ref(&gate)).await;
    let migration = scene.vm.migrate().await.unwrap();
    // The first target of all may be made before the API server stands still: this one is let in as ever.
    scene.through(&migration).await;
    scene.reset().await;
    let second = world.bed.at_second_server(world.bed.admin_identity()).unwrap();
    world.bed.pause(Component::ApiServer);
    let created = create_migration(&second.client().unwrap(), name).await;
    let reported = || async { (gate.endings("not_proven").await >= 1).then_some(()) };
    let reported = wait::eventually(SOON, reported, "a lock without proof to be reported").await;
    world.bed.resume(Component::ApiServer);
    reported.unwrap();
    let account = Account::of(world.bed, name).await;
    account.holds_with(1);
    let migration = scene.vm.migrations().await.unwrap();
    let migration = migration.into_iter().find(|migration| migration.name() == created).unwrap();
    scene.through(&migration).await;
}

async fn create_migration(client: &kube::Client, namespace: &str) -> String {
    let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstancemigrations");
    let body = serde_json::json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "while-paused"}, "spec": {"vmiName": "web"},
    });
    let answer = sluice_e2e::call::post(client, &path, &body).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    "while-paused".to_owned()
}
