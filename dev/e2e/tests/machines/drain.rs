//! The drain of a node whose VMs' quotas are all full.

use futures::future::{join_all, try_join_all};
use sluice_testbed::kubevirt::{MigrationScript, Vm};

use crate::context::{Counting, VMI, assert_always_used, until_migrated_once, until_under_way};

const NAMESPACES: usize = 5;
const VMS_EACH: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn all_vms_of_a_node_leave_it_in_quotas_that_just_fit_them() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let kubevirt = counting.kubevirt();
    let node = kubevirt.add_nodes(1).await.unwrap().remove(0);
    let teams = join_all((0..NAMESPACES).map(|_| counting.team("drain"))).await;
    let full: Vec<_> = VMI.into_iter().zip(["4", "4", "1Gi"]).collect();
    join_all(teams.iter().map(|team| team.quota("vms", &full))).await;
    let vms = try_join_all(teams.iter().flat_map(|team| {
        let vm = |number| team.tenant.kubevirt.vm(team.tenant.name(), &format!("vm-{number}")).node(&node);
        (0..VMS_EACH).map(move |number| vm(number).script(MigrationScript::Hold).start())
    }));
    let vms = vms.await.unwrap();
    join_all(teams.iter().map(|team| team.until_used("vms", &full))).await;

    let watches = join_all(teams.iter().map(|team| team.watch())).await;
    assert_eq!(kubevirt.drain(&node).await.unwrap().len(), NAMESPACES * VMS_EACH);
    until_under_way(&vms).await;
    join_all(teams.iter().map(|team| team.until_written("vms", "1Ti"))).await;
    try_join_all(vms.iter().map(Vm::release)).await.unwrap();
    join_all(vms.iter().map(until_migrated_once)).await;
    for vm in &vms {
        assert_ne!(vm.node().await.unwrap(), node);
    }
    for (team, (watch, vms)) in teams.iter().zip(watches.into_iter().zip(vms.chunks(VMS_EACH))) {
        assert_always_used(watch, "vms", &full).await;
        team.assert_nothing_refused(vms).await;
    }
}
