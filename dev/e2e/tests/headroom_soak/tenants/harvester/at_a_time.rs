//! D as it ran: KubeVirt migrates two machines at a time away from a node, and sources are counted for seconds after that.

use std::time::Duration;

use sluice_e2e::simulated_rancher::Validator;
use sluice_testbed::kubevirt::{MigrationPhase, MigrationScript, Vm};
use sluice_testbed::wait;

use super::{QUOTA, one_core, thirteen_keys};
use crate::tenants::quota_history::exact;
use crate::tenants::scene::Scene;

/// KubeVirt's controller looks at a node that is being evacuated again after some seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where the migrations of some machines are, with the number of the machine.
async fn phases(vms: &[Vm]) -> Vec<(usize, MigrationPhase)> {
    let mut phases = Vec::new();
    for (number, vm) in vms.iter().enumerate() {
        for migration in vm.migrations().await.unwrap() {
            phases.push((number, migration.phase().await.unwrap_or_default()));
        }
    }
    phases
}

/// Waits until exactly these many migrations have succeeded, two more are running, and no other one has begun. Returns whose
/// migrations run.
async fn until_two_run(vms: &[Vm], succeeded: usize) -> Vec<usize> {
    let two = || async {
        let phases = phases(vms).await;
        let is = |wanted| phases.iter().filter(move |(_, phase)| *phase == wanted);
        let begun = phases.iter().filter(|(_, phase)| *phase > MigrationPhase::Pending).count();
        let running: Vec<usize> = is(MigrationPhase::Running).map(|(number, _)| *number).collect();
        let done = is(MigrationPhase::Succeeded).count();
        assert!(begun <= done + 2, "KubeVirt's own limit: {phases:?}");
        (running.len() == 2 && done == succeeded && begun == done + 2).then_some(running)
    };
    wait::eventually(PATIENCE, two, "two migrations to run").await.unwrap()
}

/// So many launchers of 1 CPU and 2372577281 bytes.
async fn until_launchers(scene: &Scene, pods: u64) {
    let (count, memory) = (pods.to_string(), (pods * 2_372_577_281).to_string());
    scene.until_used(QUOTA, &[("limits.cpu", &count), ("limits.memory", &memory), ("pods", &count)]).await;
}

/// The migration under way succeeds; its source is kept.
async fn succeed(vm: &Vm) {
    vm.follow(MigrationScript::KeepSource).await.unwrap();
    vm.until_migration(&[]).await.unwrap().until_succeeded().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d_machines_migrate_two_at_a_time_while_former_sources_are_counted() {
    let scene = Scene::with_kubevirts_limits("test-migration-d", Validator::Present).await;
    let full = [
        ("limits.cpu", "4"),
        ("limits.memory", "9490309124"),
        ("pods", "4"),
        ("requests.cpu", "248m"),
        ("requests.memory", "6625599492"),
    ];
    let limits = thirteen_keys(&full);
    scene.quota(QUOTA, &limits).await;
    let node = scene.tenant.kubevirt.add_nodes(1).await.unwrap().remove(0);
    let machines = ["vm1", "vm2", "vm3", "vm4"]
        .map(|name| one_core(&scene.tenant, name).node(&node).script(MigrationScript::Hold));
    let vms = scene.start(machines).await;
    scene.until_used(QUOTA, &full).await;
    scene.tenant.unlimited().await;
    let recording = scene.record("1").await;
    scene.begin_evacuation(&vms).await;

    let first = until_two_run(&vms, 0).await;
    until_launchers(&scene, 6).await;
    // The report's second picture: one Succeeded with its source Running, one Running, one Scheduling, one Pending.
    succeed(&vms[first[0]]).await;
    let second = until_two_run(&vms, 1).await;
    until_launchers(&scene, 7).await;
    assert!(second.contains(&first[1]));
    succeed(&vms[first[1]]).await;
    let third = until_two_run(&vms, 2).await;
    until_launchers(&scene, 8).await;
    for number in third {
        succeed(&vms[number]).await;
    }
    until_launchers(&scene, 8).await;
    for vm in &vms {
        vm.release().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    scene.until_used(QUOTA, &full).await;
    let seen = scene.finish(recording, QUOTA, &limits).await;
    seen.assert_spec_untouched(QUOTA);
    assert_eq!(seen.raises(QUOTA), 4, "one for each migration");
    assert_eq!(seen.most_used(QUOTA, "limits.memory"), exact("18980618248"));
}
