//! An upgrade of KubeVirt: its workload updater migrates all VMs whose launchers are of another image, into larger ones.

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::json;
use sluice_engine::{Amount, Quantity};
use sluice_testbed::kubevirt::{MigrationScript, Vm};

use crate::context::{Counting, assert_always_used, until_migrated_once, until_under_way};

fn guest(launcher: &Pod) -> &Container {
    let containers = &launcher.spec.as_ref().unwrap().containers;
    containers.iter().find(|container| container.name == "compute").unwrap()
}

/// The memory that is reserved for the guest on its node.
fn reserved(launcher: &Pod) -> Amount {
    let requests = guest(launcher).resources.as_ref().unwrap().requests.as_ref().unwrap();
    Amount::from(Quantity::parse(&requests["memory"].0).unwrap())
}

/// What pods take counts, and the next ones take more of KubeVirt's own.
#[tokio::test(flavor = "multi_thread")]
async fn where_pods_count_vms_migrate_too_and_what_kubevirt_adds_is_shown() {
    let counting = Counting::by("VmiPodUsage").await;
    let team = counting.team("upgrade").await;
    team.quota("vms", &[("requests.memory", "100Gi"), ("pods", "2")]).await;
    let vms = ["a", "b"].map(|name| team.tenant.kubevirt.vm(team.tenant.name(), name));
    let vms = try_join_all(vms.map(|vm| vm.script(MigrationScript::Hold).start())).await.unwrap();
    team.until_used("vms", &[("pods", "2")]).await;
    let full = team.used("vms", "requests.memory").await;
    team.set_hard("vms", "requests.memory", &full).await;
    counting.configure(json!({ "additionalGuestMemoryOverheadRatio": "2.0" })).await;
    counting.running.bed.upgrade_kubevirt("later-launcher").unwrap();
    until_under_way(&vms).await;
    try_join_all(vms.iter().map(Vm::release)).await.unwrap();
    join_all(vms.iter().map(until_migrated_once)).await;
    let amount = |text: &str| Amount::from(Quantity::parse(text).unwrap());
    let used = team.used("vms", "requests.memory").await;
    assert!(amount(&used) > amount(&full), "{used} of {full}");
    team.assert_nothing_refused(&vms).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_migrate_into_larger_launchers_in_quotas_that_just_fit_them() {
    let counting = Counting::by("VirtualResources").await;
    let teams = [counting.team("upgrade").await, counting.team("upgrade").await];
    let full =
        [("requests.cpu", "2"), ("requests.memory", "512Mi"), ("limits.memory", "512Mi"), ("pods", "2")];
    join_all(teams.iter().map(|team| team.quota("vms", &full))).await;
    let vms = teams
        .iter()
        .flat_map(|team| ["a", "b"].map(|name| team.tenant.kubevirt.vm(team.tenant.name(), name)));
    let vms = try_join_all(vms.map(|vm| vm.script(MigrationScript::Hold).start())).await.unwrap();
    join_all(teams.iter().map(|team| team.until_used("vms", &full))).await;
    let before = try_join_all(vms.iter().map(|vm| vm.pod())).await.unwrap();

    let watches = join_all(teams.iter().map(|team| team.watch())).await;
    counting.configure(json!({ "additionalGuestMemoryOverheadRatio": "2.0" })).await;
    counting.running.bed.upgrade_kubevirt("next-launcher").unwrap();
    until_under_way(&vms).await;
    join_all(teams.iter().map(|team| team.until_written("vms", "1Ti"))).await;
    try_join_all(vms.iter().map(Vm::release)).await.unwrap();
    join_all(vms.iter().map(until_migrated_once)).await;
    for (vm, before) in vms.iter().zip(&before) {
        let after = vm.pod().await.unwrap();
        assert_eq!(guest(&after).image.as_deref(), Some("next-launcher"));
        assert!(reserved(&after) > reserved(before), "{after:#?}");
    }
    for (team, (watch, vms)) in teams.iter().zip(watches.into_iter().zip(vms.chunks(2))) {
        assert_always_used(watch, "vms", &full).await;
        team.assert_nothing_refused(vms).await;
    }
}
