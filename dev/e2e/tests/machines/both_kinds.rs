//! A native quota and one that counts VMs, both exactly full: head-room for the first, nothing to pay in the second.

use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::json;
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::tenant::{hard, spec_hard, used};
use sluice_testbed::kubevirt::{MigrationPhase, MigrationScript};

use crate::context::{Counting, VMI, assert_always_used};

const NATIVE: [&str; 5] = ["requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods"];

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_migrates_where_both_its_quotas_are_full() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let team = counting.team("both").await;
    let full: Vec<_> = VMI.into_iter().zip(["1", "2", "1Gi"]).collect();
    team.quota("vms", &full).await;
    let vm = team.tenant.kubevirt.vm(team.tenant.name(), "web").sockets(2).memory("1Gi");
    let vm = vm.limits(&[("cpu", "2"), ("memory", "1Gi")]).start().await.unwrap();
    team.until_used("vms", &full).await;
    let native = team.tenant.full_quota("rq", &NATIVE).await;
    // For exactly one launcher more.
    team.tenant.vmmrq("grant", json!(spec_hard(&native))).await;
    let watch = team.watch().await;
    for round in ["1Ti", "2Ti"] {
        vm.follow(MigrationScript::Hold).await.unwrap();
        let migration = vm.migrate().await.unwrap();
        migration.until(MigrationPhase::Running).await.unwrap();
        let both = |quota: &ResourceQuota| used(quota)["pods"].0 == "2" && hard(quota) == hard(&native);
        team.tenant.until_quota("rq", "to count both launchers", both).await;
        team.until_written("vms", round).await;
        vm.release().await.unwrap();
        migration.until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        assert!(!migration.rejected().await.unwrap());
        let as_before = |quota: &ResourceQuota| [used(quota), hard(quota)] == [used(&native), hard(&native)];
        let after = team.tenant.until_quota("rq", "to be as before", as_before).await;
        assert_eq!((&after.spec, &after.metadata.annotations), (&native.spec, &native.metadata.annotations));
    }
    assert_always_used(watch, "vms", &full).await;
    team.assert_nothing_refused(&[vm]).await;
    assert_eq!(AuditTrail::of(&team.tenant).await.raises().len(), 2, "one for each target");
}
