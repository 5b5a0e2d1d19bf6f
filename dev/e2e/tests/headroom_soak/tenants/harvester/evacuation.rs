//! B to E: one machine in a quota with room, sources that are counted for long, four machines at once, and three machines
//! whose requests fill the quota.

use rstest::rstest;
use serde_json::json;
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::simulated_rancher::Validator;
use sluice_e2e::tenant::{SOON, hard};
use sluice_testbed::kubevirt::{MigrationScript, VmBuilder};
use sluice_testbed::wait;

use super::{QUOTA, add_volumes_and_secrets, one_core, small, thirteen_keys, two_cores};
use crate::tenants::quota_history::exact;
use crate::tenants::scene::{Scene, amounts, migrate_once};

#[rstest]
#[case::without_webhook(Validator::Absent)]
#[case::with_ranchers_webhook(Validator::Present)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_one_machine_migrates_in_a_quota_with_room(#[case] validator: Validator) {
    let scene = Scene::new("test-migration-b", validator).await;
    let limits = thirteen_keys(&[]);
    scene.quota(QUOTA, &limits).await;
    scene.tenant.unlimited().await;
    add_volumes_and_secrets(&scene.tenant, &["10Gi"], 1).await;
    let vms = scene.start([two_cores(&scene.tenant, "vm1")]).await;
    let one = [
        ("configmaps", "1"),
        ("limits.cpu", "2"),
        ("limits.memory", "4531245057"),
        ("persistentvolumeclaims", "1"),
        ("pods", "1"),
        ("requests.cpu", "125m"),
        ("requests.memory", "3098890241"),
        ("requests.storage", "10Gi"),
        ("secrets", "1"),
    ];
    scene.until_used(QUOTA, &one).await;
    let recording = scene.record("29").await;
    let both = [
        ("limits.cpu", "4"),
        ("limits.memory", "9062490114"),
        ("pods", "2"),
        ("requests.cpu", "250m"),
        ("requests.memory", "6197780482"),
    ];
    migrate_once(&scene, &vms[0], QUOTA, &both, &one).await;
    let seen = scene.finish(recording, QUOTA, &limits).await;
    seen.assert_spec_untouched(QUOTA);
    assert_eq!(seen.raises(QUOTA), 0, "there was room");
    let after = scene.tenant.quotas.get(QUOTA).await.unwrap();
    assert_eq!(hard(&after)["limits.memory"].0, "60Gi", "not rewritten as 64424509440");
}

#[rstest]
#[case::without_webhook(Validator::Absent)]
#[case::with_ranchers_webhook(Validator::Present)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_machines_migrate_while_the_source_of_an_ended_migration_is_counted(#[case] validator: Validator) {
    let scene = Scene::new("test-migration-c", validator).await;
    let limits = thirteen_keys(&[]);
    scene.quota(QUOTA, &limits).await;
    add_volumes_and_secrets(&scene.tenant, &["10Gi", "4Gi", "4Gi", "4Gi"], 4).await;
    let machines = ["vm1", "vm2", "vm3", "vm4"].map(|name| one_core(&scene.tenant, name));
    let vms = scene.start(machines).await;
    let four = [
        ("configmaps", "1"),
        ("limits.cpu", "4"),
        ("limits.memory", "9490309124"),
        ("persistentvolumeclaims", "4"),
        ("pods", "4"),
        ("requests.cpu", "248m"),
        ("requests.memory", "6625599492"),
        ("requests.storage", "22Gi"),
        ("secrets", "4"),
    ];
    scene.until_used(QUOTA, &four).await;
    // Beside the quota with room, one that is full of these machines.
    let full = amounts(&[four[1], four[2], four[4], four[5], four[6]]);
    scene.tenant.quota("full", json!(full)).await;
    scene.until_used("full", &four[1..3]).await;
    scene.tenant.unlimited().await;
    let recording = scene.record("1").await;
    vms[0].follow(MigrationScript::KeepSource).await.unwrap();
    vms[0].migrate().await.unwrap().until_succeeded().await.unwrap();
    let five = [("limits.cpu", "5"), ("limits.memory", "11862886405"), ("pods", "5")];
    for vm in &vms[1..] {
        scene.until_used("full", &five).await;
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    scene.until_used("full", &five).await;
    vms[0].release().await.unwrap();
    vms[0].until_alone().await.unwrap();
    scene.until_used("full", &four[1..3]).await;
    let seen = scene.finish(recording, "full", &full).await;
    seen.assert_spec_untouched("full");
    seen.assert_spec_untouched(QUOTA);
    assert_eq!(seen.raises(QUOTA), 0, "there was room");
    assert_eq!(seen.raises("full"), 4, "one for each migration");
    assert!(seen.most_used("full", "limits.cpu") <= exact("6"), "the kept source and one target");
}

#[rstest]
#[case::without_webhook(Validator::Absent)]
#[case::with_ranchers_webhook(Validator::Present)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d_four_machines_that_fill_the_quota_are_evacuated_at_once(#[case] validator: Validator) {
    let scene = Scene::new("test-migration-d", validator).await;
    let full = [
        ("limits.cpu", "4"),
        ("limits.memory", "9490309124"),
        ("pods", "4"),
        ("requests.cpu", "248m"),
        ("requests.memory", "6625599492"),
    ];
    let limits = thirteen_keys(&full);
    scene.quota(QUOTA, &limits).await;
    let machines = ["vm1", "vm2", "vm3", "vm4"].map(|name| one_core(&scene.tenant, name));
    let vms = scene.start(machines).await;
    scene.until_used(QUOTA, &full).await;
    scene.tenant.unlimited().await;
    let recording = scene.record("1").await;
    scene.evacuate(&vms).await;
    scene.until_used(QUOTA, &full).await;
    let seen = scene.finish(recording, QUOTA, &limits).await;
    seen.assert_spec_untouched(QUOTA);
    assert!(seen.most_used(QUOTA, "pods") <= exact("8"), "one target for each machine");
    assert!(seen.most_used(QUOTA, "limits.memory") <= exact("18980618248"));
}

/// E: three machines of 916820Ki, and their quota.
const THREE: [(&str, &str); 4] = [
    ("limits.cpu", "3"),
    ("limits.memory", "3892310016"),
    ("requests.cpu", "186m"),
    ("requests.memory", "2816471040"),
];
const JUST_ABOVE_THREE: [(&str, &str); 4] = [
    ("limits.cpu", "3"),
    ("limits.memory", "4404019200"),
    ("requests.cpu", "3"),
    ("requests.memory", "4200Mi"),
];

fn three(scene: &Scene) -> [VmBuilder; 3] {
    ["vm1", "vm2", "vm3"].map(|name| small(&scene.tenant, name))
}

/// In the report virt-controller was rejected 27 times.
#[rstest]
#[case::without_webhook(Validator::Absent)]
#[case::with_ranchers_webhook(Validator::Present)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e_three_machines_whose_requests_fill_the_quota_are_evacuated(#[case] validator: Validator) {
    let scene = Scene::new("test-migration-e", validator).await;
    let limits = thirteen_keys(&JUST_ABOVE_THREE);
    scene.quota(QUOTA, &limits).await;
    add_volumes_and_secrets(&scene.tenant, &["4Gi"; 6], 3).await;
    let vms = scene.start(three(&scene)).await;
    scene.until_used(QUOTA, &THREE).await;
    let others =
        [("persistentvolumeclaims", "6"), ("pods", "3"), ("requests.storage", "24Gi"), ("secrets", "3")];
    scene.until_used(QUOTA, &others).await;
    scene.tenant.unlimited().await;
    let recording = scene.record("1").await;
    scene.evacuate(&vms).await;
    scene.until_used(QUOTA, &THREE).await;
    let seen = scene.finish(recording, QUOTA, &limits).await;
    seen.assert_spec_untouched(QUOTA);
    assert!(seen.most_used(QUOTA, "requests.memory") <= exact("5500920Ki"), "one target for each machine");
}

/// The fault itself: Harvester had raised the limits only. Then a budget comes, and the waiting migrations are told.
#[rstest]
#[case::without_webhook(Validator::Absent)]
#[case::with_ranchers_webhook(Validator::Present)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e_without_a_budget_two_of_three_wait_as_in_the_report(#[case] validator: Validator) {
    let scene = Scene::new("test-migration-e", validator).await;
    let scaled = [("limits.cpu", "6"), ("limits.memory", "8296329216"), ("requests.memory", "4200Mi")];
    scene.quota(QUOTA, &thirteen_keys(&scaled)).await;
    let machines = three(&scene).map(|machine| machine.script(MigrationScript::Hold));
    let vms = scene.start(machines).await;
    scene.until_used(QUOTA, &THREE).await;
    scene.begin_evacuation(&vms).await;
    let message = "exceeded quota: default-gn4d2, requested: requests.memory=938823680, \
                   used: requests.memory=3755294720, limited: requests.memory=4200Mi";
    let rejected = || async {
        let trail = AuditTrail::of(&scene.tenant).await;
        let as_reported = trail.rejections().iter().filter(|told| told.contains(message)).count();
        (as_reported >= 2).then_some(())
    };
    wait::eventually(SOON, rejected, "the rejections of the report").await.unwrap();
    scene.until_used(QUOTA, &[("requests.memory", "3755294720"), ("pods", "4")]).await;
    assert!(AuditTrail::of(&scene.tenant).await.locks().is_empty(), "no budget, no lock");
    scene.tenant.unlimited().await;
    for vm in &vms {
        vm.until_migration(&[]).await.unwrap().until_target_pod().await.unwrap();
    }
    scene.until_used(QUOTA, &[("requests.memory", "5632942080"), ("pods", "6")]).await;
    for vm in &vms {
        vm.release().await.unwrap();
        vm.until_migration(&[]).await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    scene.tenant.until_clear().await;
    scene.until_used(QUOTA, &THREE).await;
}
