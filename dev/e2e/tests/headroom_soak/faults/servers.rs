//! Nothing is let in that not every API server keeps others out for.

use std::time::{Duration, Instant};

use futures::future::{join, join_all, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use sluice_api::names;
use sluice_e2e::pair::{at_second, both};
use sluice_e2e::tenant::Tenant;
use sluice_testbed::kubevirt::{Migration, Vm};
use sluice_testbed::{Component, wait};

use crate::faults::gate::Gate;
use crate::faults::invariants::Invariants;
use crate::faults::scene::Scene;
use crate::faults::world::{self, World, account};

const SOON: Duration = Duration::from_secs(60);
/// The most that an API server which stands still may hold up the targets of a namespace with room.
const HELD_UP: Duration = Duration::from_secs(2);

/// A webhook that knows both API servers, asked by both. It speaks with the second, as KubeVirt's controller does.
async fn gate(world: &World, scene: &Scene) -> Gate {
    let (bed, servers) = (world.bed, both(world.bed));
    let identity = bed.at_second_server(&account(bed, names::WEBHOOK).await).unwrap();
    let gate = Gate::start(world, &identity, &servers.each_ref().map(String::as_str)).await;
    gate.serve(bed, scene.tenant.name(), &[bed.admin().unwrap(), at_second(bed)]).await;
    gate
}

async fn until_unsettled(gate: &Gate) {
    let told = || async { (gate.endings("unsettled").await >= 1).then_some(()) };
    wait::eventually(SOON, told, "a session that ends unsettled").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_is_proven_at_both_api_servers() {
    let world = world::pair().await;
    let scene = Scene::unlimited(world.bed, "both").await;
    let _gate = gate(&world, &scene).await;
    for _ in 0..3 {
        let migration = scene.vm.migrate().await.unwrap();
        scene.settled(&migration).await;
        scene.reset().await;
    }
    let invariants = Invariants::of(world.bed, scene.tenant.name()).await;
    invariants.holds(2);
    assert_eq!(invariants.raises(), 6, "{invariants:#?}");
    assert_eq!(scene.tenant.rejected_attempts().await, 0);
}

/// The second API server does not learn of quotas, but answers; KubeVirt's controller speaks with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_whose_watch_lags_lets_nothing_in() {
    let world = world::pair().await;
    let scene = Scene::unlimited(world.bed, "lags").await;
    let gate = gate(&world, &scene).await;
    world.bed.hold_watches("/registry/resourcequotas");
    let migration = scene.vm.migrate().await.unwrap();
    let waited = migration.until_rejected().await;
    until_unsettled(&gate).await;
    let target = migration.target_pod().await;
    world.bed.release_watches();
    waited.unwrap();
    assert!(target.unwrap().is_none(), "nothing is let in that is not proven");
    scene.settled(&migration).await;
    Invariants::of(world.bed, scene.tenant.name()).await.holds(2);
}

/// The first API server stands still; KubeVirt's controller and the webhook speak with the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_stands_still_lets_nothing_in() {
    let world = world::pair().await;
    let scene = Scene::unlimited(world.bed, "still").await;
    let gate = gate(&world, &scene).await;
    let second = at_second(world.bed);
    world.bed.pause(Component::ApiServer);
    let migration = scene.vm.through(&second).migrate().await.unwrap();
    let told = || async { (gate.endings("unproven").await >= 1).then_some(()) };
    let told = wait::eventually(SOON, told, "a session without proof").await;
    // Before the resume: after it the target is proven and let in within milliseconds.
    let pods: Api<Pod> = Api::namespaced(second, scene.tenant.name());
    let targets = pods.list(&ListParams::default().labels(names::MIGRATION_JOB_LABEL)).await;
    world.bed.resume(Component::ApiServer);
    told.unwrap();
    assert_eq!(targets.unwrap().items.len(), 0, "nothing is let in that is not proven");
    scene.settled(&migration).await;
    Invariants::of(world.bed, scene.tenant.name()).await.holds(2);
}

/// KubeVirt's controller creates one target after the other, so whoever waits for a proof
/// that does not come lets all others wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_stands_still_holds_no_namespace_with_room_up() {
    let world = world::pair().await;
    let full = join_all((0..5).map(|_| Scene::unlimited(world.bed, "full"))).await;
    let roomy = Tenant::on(world.bed, "roomy").await;
    let vms: Vec<String> = (0..12).map(|number| format!("vm-{number}")).collect();
    let second = at_second(world.bed);
    let vms: Vec<Vm> = join_all(vms.iter().map(async |name| roomy.vm(name).await.through(&second))).await;
    let gate = gate(&world, &full[0]).await;
    gate.serve_all(world.bed, &[world.bed.admin().unwrap(), at_second(world.bed)]).await;
    let (before, during) = vms.split_at(vms.len() / 2);
    let undisturbed = until_targets(before).await;
    let blocked: Vec<Vm> = full.iter().map(|scene| scene.vm.through(&second)).collect();
    world.bed.pause(Component::ApiServer);
    let (migrations, disturbed) =
        join(try_join_all(blocked.iter().map(Vm::migrate)), until_targets(during)).await;
    let told = || async { (gate.endings("unproven").await >= 1).then_some(()) };
    let told = wait::eventually(SOON, told, "a session without proof").await;
    world.bed.resume(Component::ApiServer);
    told.unwrap();
    let count = during.len();
    eprintln!("{count} targets: {undisturbed:?} with both API servers, {disturbed:?} while one stands still");
    // Each of five sessions waits for a second at most; one behind the other, with KubeVirt's back-off, they would take
    // long.
    assert!(disturbed <= undisturbed + HELD_UP, "{disturbed:?} instead of {undisturbed:?}");
    for (scene, migration) in full.iter().zip(&migrations.unwrap()) {
        scene.settled_when_woken(migration).await;
    }
}

/// Migrates these machines at once. Returns how long it took until they had their targets.
async fn until_targets(machines: &[Vm]) -> Duration {
    let begin = Instant::now();
    let migrations = try_join_all(machines.iter().map(Vm::migrate)).await.unwrap();
    try_join_all(migrations.iter().map(Migration::until_target_pod)).await.unwrap();
    begin.elapsed()
}
