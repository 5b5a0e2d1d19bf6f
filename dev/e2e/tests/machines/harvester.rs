//! A namespace as Harvester and Rancher make it, and Sluice's quota of VMs in it.

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_e2e::simulated_rancher::{MARKER, SimulatedRancher, Validator, WANTED};
use sluice_e2e::tenant::{hard, used};

use crate::context::{Counting, VMI, assert_always_used, until_migrated_once};

/// As Harvester configures its KubeVirt; the bed's has `LiveUpdate` always.
async fn configure(counting: &Counting) {
    let migrations = json!({
        "parallelMigrationsPerCluster": 5, "parallelOutboundMigrationsPerNode": 2,
        "completionTimeoutPerGiB": 150, "progressTimeout": 150,
    });
    let configuration = json!({ "migrations": migrations, "additionalGuestMemoryOverheadRatio": "1.5" });
    counting.configure(configuration).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_passes_ranchers_full_quota_and_one_of_vms() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    configure(&counting).await;
    let kubevirt = counting.kubevirt();
    let node = kubevirt.add_nodes(1).await.unwrap().remove(0);
    let team = counting.team("harvester").await;
    let tenant = &team.tenant;
    let full: Vec<_> = VMI.into_iter().zip(["3", "3", "3Gi"]).collect();
    team.quota("vms", &full).await;
    // With 1600 % of CPUs and 150 % of memory overcommitted.
    let vms = try_join_all(["vm1", "vm2", "vm3"].map(|name| {
        let vm =
            tenant.kubevirt.vm(tenant.name(), name).memory("1Gi").limits(&[("cpu", "1"), ("memory", "1Gi")]);
        vm.requests(&[("cpu", "62m"), ("memory", "682Mi")]).node(&node).start()
    }));
    let vms = vms.await.unwrap();
    team.until_used("vms", &full).await;

    let usage = tenant.usage(&["limits.cpu", "limits.memory"]).await;
    let rancher = SimulatedRancher::start(tenant.bed, tenant.name(), Validator::Absent).await.unwrap();
    let limit = json!({ "limitsCpu": usage["limits.cpu"], "limitsMemory": usage["limits.memory"] });
    rancher.want(Some(&limit)).await.unwrap();
    rancher.synchronize().await.unwrap();
    let managed = ListParams::default().labels(&format!("{MARKER}=true"));
    let name = tenant.quotas.list(&managed).await.unwrap().items.remove(0).name_any();
    // People put it there too.
    let wanted = json!({ "limit": limit }).to_string();
    let annotate = Patch::Merge(json!({ "metadata": { "annotations": { WANTED: wanted } } }));
    tenant.quotas.patch(&name, &PatchParams::default(), &annotate).await.unwrap();
    tenant.unlimited().await;
    let is_full = |quota: &ResourceQuota| used(quota) == usage && hard(quota) == usage;
    let before = tenant.until_quota(&name, "to be full", is_full).await;

    let watch = team.watch().await;
    assert_eq!(kubevirt.drain(&node).await.unwrap().len(), vms.len());
    join_all(vms.iter().map(until_migrated_once)).await;
    let after = tenant.until_quota(&name, "to be full again", is_full).await;
    assert_eq!(after.spec, before.spec);
    let of = |quota: &ResourceQuota| (quota.annotations().clone(), quota.labels().clone());
    assert_eq!(of(&after), of(&before));
    assert_always_used(watch, "vms", &full).await;
    team.assert_nothing_refused(&vms).await;
}
