//! Migrations under a full quota.

use crate::context::{Counting, VMI};

#[tokio::test(flavor = "multi_thread")]
async fn of_three_vms_two_fit_and_migrate_in_the_full_quota() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let team = counting.team("two").await;
    let [instances, cpu, memory] = VMI;
    team.quota("vms", &[(instances, "2"), (cpu, "2"), (memory, "512Mi")]).await;
    let first = team.tenant.vm("first").await;
    let second = team.tenant.vm("second").await;
    let full = [(instances, "2"), (cpu, "2"), (memory, "512Mi")];
    team.until_used("vms", &full).await;
    let third = team.tenant.kubevirt.vm(team.tenant.name(), "third").create().await.unwrap();
    let held = team.until_held("third").await;
    let told = team.until_told(&held).await;
    assert_eq!(
        told,
        "exceeded quota: vms, requested: requests.cpu/vmi=1,requests.instances/vmi=1,requests.memory/vmi=256Mi, \
         used: requests.cpu/vmi=2,requests.instances/vmi=2,requests.memory/vmi=512Mi, \
         limited: requests.cpu/vmi=2,requests.instances/vmi=2,requests.memory/vmi=512Mi"
    );
    for vm in [&first, &second, &first] {
        let migration = vm.migrate().await.unwrap();
        migration.until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        team.until_used("vms", &full).await;
        assert!(!migration.rejected().await.unwrap());
    }
    assert_eq!(team.until_held("third").await.metadata.uid, held.metadata.uid, "it waits still");
    second.delete().await.unwrap();
    third.until_running().await.unwrap();
    team.until_used("vms", &full).await;
}
