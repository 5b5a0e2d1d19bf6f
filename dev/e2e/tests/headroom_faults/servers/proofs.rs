//! Nothing is raised that not every API server is known to lock.

use std::time::Duration;

use hyper::Method;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy as Policy, ValidatingAdmissionPolicyBinding as Binding,
};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::Value;
use sluice_api::names;
use sluice_operator::{InstallOptions, render};
use sluice_testbed::proxy::{FaultProxy, Rule};
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

async fn until_not_proven(gate: &Gate) {
    let reported = || async { (gate.endings("not_proven").await >= 1).then_some(()) };
    wait::eventually(SOON, reported, "a lock without proof to be reported").await.unwrap();
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

/// One of two addresses leads to an API server that lets every probe in, as if it had not heard of the window yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_has_not_seen_the_window_lets_nothing_be_raised() {
    let world = world::pair().await;
    let scene = Scene::full(world.bed, "lagging").await;
    let late = FaultProxy::start(world.bed, &account(world.bed, names::WEBHOOK).await).await.unwrap();
    let ignorant = Rule::answer(201).unwrap().method(Method::POST).path("/migrationwindows$").unwrap();
    let ignorant = late.add(ignorant);
    let url = server_of(&late);
    let gate = gate(&world, &scene, &[&world.bed.server_url(), &url]).await;
    scene.tenant.unlimited().await;
    let migration = scene.vm.migrate().await.unwrap();
    until_not_proven(&gate).await;
    assert!(ignorant.applied() >= 1);
    let account = Account::of(world.bed, scene.tenant.name()).await;
    account.holds();
    assert_eq!(gate.endings("entered").await, 0);
    // It has heard of windows now.
    late.clear();
    scene.through(&migration).await;
    scene.reset().await;
    let before = gate.endings("entered").await;
    scene.migrate_through().await;
    assert_eq!(gate.endings("entered").await, before + 1);
}

fn server_of(proxy: &FaultProxy) -> String {
    let file = kube::config::Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
    file.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap()
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

fn shipped(kind: &str) -> Value {
    let objects = render(&InstallOptions::default());
    let is = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == names::WINDOW_POLICY;
    objects.into_iter().find(is).unwrap()
}

/// Without the policy, or without its binding, a window locks nothing: so nothing is raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_policy_nothing_is_raised_until_it_is_back() {
    let world = world::pair().await;
    let client = world.bed.admin().unwrap();
    let scene = Scene::unlimited(world.bed, "unlocked").await;
    let gate = gate(&world, &scene, &[]).await;
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        let known = gate.endings("not_proven").await;
        let raised = Account::of(world.bed, scene.tenant.name()).await.raises();
        let now = DeleteParams::default();
        if kind == "ValidatingAdmissionPolicy" {
            Api::<Policy>::all(client.clone()).delete(names::WINDOW_POLICY, &now).await.unwrap();
        } else {
            Api::<Binding>::all(client.clone()).delete(names::WINDOW_POLICY, &now).await.unwrap();
        }
        world.until_unlocking().await;
        let migration = scene.vm.migrate().await.unwrap();
        migration.until_rejected().await.unwrap();
        assert!(gate.endings("not_proven").await > known, "it is reported");
        let account = Account::of(world.bed, scene.tenant.name()).await;
        account.holds();
        assert_eq!(account.raises(), raised);
        world.bed.apply_objects([shipped(kind)]).await.unwrap();
        world.installation.until_locking().await.unwrap();
        scene.through(&migration).await;
        scene.reset().await;
    }
    let before = gate.endings("entered").await;
    scene.migrate_through().await;
    assert_eq!(gate.endings("entered").await, before + 1, "it works again");
}
