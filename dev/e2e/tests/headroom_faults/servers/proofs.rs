//! Nothing is raised that not every API server is known to lock.

use std::time::Duration;

use serde_json::Value;
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

/// The second API server does not learn of windows, but answers; KubeVirt's controller speaks with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_whose_watch_lags_lets_nothing_be_raised() {
    let world = world::pair().await;
    let scene = Scene::unlimited(world.bed, "lags").await;
    let (first, second) = (world.bed.server_url(), world.bed.second_server_url());
    let gate = gate(&world, &scene, &[&first, &second]).await;
    let before = scene.migrate_through().await.raises();
    scene.reset().await;
    let name = scene.tenant.name();
    let let_through = probes_let_through(&world, name).await;
    world.bed.hold_watches("/registry/quota.sluice.dev/migrationwindows");
    let migration = scene.vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    let reported = || async { (gate.endings("not_proven").await >= 2).then_some(()) };
    wait::eventually(SOON, reported, "a lock without proof to be reported").await.unwrap();
    let account = Account::of(world.bed, name).await;
    assert_eq!(account.raises(), before, "{account:#?}");
    // It answered, and not as the other one.
    assert!(probes_let_through(&world, name).await > let_through + 10);
    world.bed.release_watches();
    scene.through(&migration).await.holds_with(2);
}

/// How many probes were answered as if there were no window.
async fn probes_let_through(world: &World, namespace: &str) -> usize {
    let events = world.bed.audit_events_with(namespace).await.unwrap();
    let is_let_through = |event: &&Value| {
        let text = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        text("/objectRef/resource") == names::MIGRATION_WINDOWS
            && text("/objectRef/namespace") == namespace
            && text("/requestObject/metadata/name") == names::PROBE_NAME
            && event["responseStatus"]["code"] == 201
    };
    events.iter().filter(is_let_through).count()
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
