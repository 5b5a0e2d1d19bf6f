//! An upgrade of KubeVirt under full quotas: its workload updater migrates every machine whose launcher has another image.
//! That a quota stops such an upgrade was the second motive of managed-tenant-quota.

use futures::future::join_all;
use k8s_openapi::api::core::v1::ResourceQuota;
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::tenant::{Tenant, spec_hard, used};
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::Vm;

use crate::tenants::mtq::one_pod;
use crate::tenants::quota_history::QuotaHistory;
use crate::tenants::scene::until_told;
use crate::tenants::second_bed::alone;

const KEYS: [&str; 3] = ["requests.cpu", "requests.memory", "pods"];
const NEXT: &str = "launcher-of-the-next-kubevirt";

/// Three machines that fill their quota.
struct Team {
    tenant: Tenant<'static>,
    vms: Vec<Vm>,
    full: ResourceQuota,
}

impl Team {
    async fn new(bed: &'static Bed) -> Self {
        let tenant = Tenant::on(bed, "upgrade").await;
        let vms = join_all(["a", "b", "c"].map(|name| tenant.vm(name))).await;
        let full = tenant.full_quota("rq", &KEYS).await;
        Self { tenant, vms, full }
    }

    /// Room for a target of each machine.
    async fn grant(&self) {
        self.tenant.vmmrq("upgrades", one_pod(std::slice::from_ref(&self.full))).await;
    }

    /// How many machines run in a launcher of the next KubeVirt.
    async fn upgraded(&self) -> usize {
        let pods = join_all(self.vms.iter().map(Vm::pod)).await;
        let is_next = |pod: &k8s_openapi::api::core::v1::Pod| {
            let mut containers = pod.spec.as_ref().unwrap().containers.iter();
            containers.any(|one| one.name == "compute" && one.image.as_deref() == Some(NEXT))
        };
        pods.into_iter().map(Result::unwrap).filter(is_next).count()
    }

    /// Waits until each machine has migrated once and the quota is as it was.
    async fn until_upgraded(&self) {
        for vm in &self.vms {
            vm.until_migration(&[]).await.unwrap().until_succeeded().await.unwrap();
            vm.until_alone().await.unwrap();
        }
        self.tenant.until_clear().await;
        let as_before =
            |now: &ResourceQuota| KEYS.iter().all(|key| used(now)[*key] == used(&self.full)[*key]);
        let now = self.tenant.until_quota("rq", "the sources to be given back", as_before).await;
        assert_eq!(spec_hard(&now), spec_hard(&self.full));
        assert_eq!(self.upgraded().await, self.vms.len());
    }

    /// Waits until KubeVirt's controller was refused a target for each machine.
    async fn until_refused(&self) {
        for vm in &self.vms {
            let migration = vm.until_migration(&[]).await.unwrap();
            migration.until_rejected().await.unwrap();
            assert!(migration.target_pod().await.unwrap().is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_in_full_quotas_are_upgraded_where_a_budget_lets_them_migrate() {
    let bed_use = alone().await;
    let (granted, bare) = (Team::new(bed_use.bed).await, Team::new(bed_use.bed).await);
    granted.grant().await;
    let history = QuotaHistory::of(&granted.tenant).await;
    bed_use.bed.upgrade_kubevirt(NEXT).unwrap();

    granted.until_upgraded().await;
    assert_none_rejected(&granted.tenant).await;
    history.end().await.assert_spec_untouched("rq");

    // Without a budget the upgrade stands still, and both who looks at a machine and who looks at its migration read why.
    bare.until_refused().await;
    for kind in ["VirtualMachineInstanceMigration", "VirtualMachineInstance"] {
        let said = until_told(&bare.tenant, kind, "NotEnoughHeadroom").await.message.unwrap();
        assert!(said.contains("quota rq") && KEYS.iter().any(|key| said.contains(key)), "{said}");
    }
    until_told(&bare.tenant, "Pod", "NotEnoughResourceToRelease").await;
    assert_eq!(bare.upgraded().await, 0);
    assert_eq!(AuditTrail::of(&bare.tenant).await.raises().len(), 0);
    // The same migrations go on as soon as there is one.
    bare.grant().await;
    bare.until_upgraded().await;
    AuditTrail::of(&bare.tenant).await.assert_no_spec_written();
}
