//! Sluice beside Harvester's own scaler, with and without the annotation that turns
//! it off for a quota (`docs/harvester.md`).

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::simulated_harvester::{MIGRATING, SKIP, SimulatedHarvester};
use sluice_e2e::simulated_rancher::Validator;
use sluice_e2e::tenant::{SOON, amount, hard, spec_hard, used};
use sluice_testbed::kubevirt::{Migration, Vm, VmBuilder};
use sluice_testbed::wait;

use super::QUOTA;
use crate::tenants::quota_history::{QuotaHistory, exact};
use crate::tenants::scene::{Amounts, Scene, amounts, machine};

/// What Harvester's formula adds to the memory limit of a machine with 2 cores, 4Gi and 2730Mi. The container
/// `guest-console-log` of its pod has 15m and 60,000,000 bytes more.
const OVERHEAD: &str = "294998017";

fn vm1(scene: &Scene) -> VmBuilder {
    machine(&scene.tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi"))
}

/// A namespace of 3 cores and 5000Mi: room for the pod of one such machine, and with what Harvester adds for two.
fn roomy() -> Amounts {
    amounts(&[("limits.cpu", "3"), ("limits.memory", "5000Mi")])
}

/// Exactly the pod of one such machine: what Harvester adds is too little for the second one.
fn tight() -> Amounts {
    amounts(&[("limits.cpu", "2015m"), ("limits.memory", "4649965313")])
}

/// A namespace with these limits and Harvester's scaler.
struct Beside {
    scene: Scene,
    harvester: SimulatedHarvester,
    base: Amounts,
}

impl Beside {
    async fn with(prefix: &str, base: Amounts) -> Self {
        let scene = Scene::new(prefix, Validator::Absent).await;
        scene.quota(QUOTA, &base).await;
        let (bed, namespace) = (scene.tenant.bed, scene.tenant.name());
        let harvester = SimulatedHarvester::start(bed, namespace, &base, OVERHEAD).unwrap();
        Self { scene, harvester, base }
    }

    /// The migration succeeds. Then the quota is as at the beginning: its spec, what it enforces, nothing that Harvester has
    /// recorded, and nothing above it. Sluice has not written it.
    async fn ends_well(&self, vm: &Vm, migration: &Migration) {
        migration.until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        let as_before = |quota: &ResourceQuota| {
            let (spec, enforced, used) = (spec_hard(quota), hard(quota), used(quota));
            let is_recorded =
                quota.metadata.annotations.iter().flatten().any(|(key, _)| key.starts_with(MIGRATING));
            enforced == spec
                && !is_recorded
                && self.base.iter().all(|(key, text)| {
                    amount(&spec, key) == exact(text) && amount(&used, key) <= amount(&spec, key)
                })
        };
        self.scene.tenant.until_quota(QUOTA, "to be as before", as_before).await;
        AuditTrail::of(&self.scene.tenant).await.assert_no_spec_written();
        assert!(self.harvester.is_acting());
    }
}

/// Harvester's scaler is off for this quota, and Sluice makes the room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_annotation_sluice_alone_makes_the_room() {
    let beside = Beside::with("annotated", roomy()).await;
    let tenant = &beside.scene.tenant;
    let skip = Patch::Merge(json!({ "metadata": { "annotations": { SKIP: "true" } } }));
    tenant.quotas.patch(QUOTA, &PatchParams::default(), &skip).await.unwrap();
    tenant.unlimited().await;
    let vm = vm1(&beside.scene).start().await.unwrap();
    let history = QuotaHistory::of(tenant).await;
    let migration = vm.migrate().await.unwrap();
    beside.ends_well(&vm, &migration).await;
    let seen = history.end().await;
    assert_eq!(seen.raises(QUOTA), 1);
    seen.assert_spec_untouched(QUOTA);
    assert_none_rejected(tenant).await;
    assert_eq!(beside.harvester.spec_writes(), 0);
}

/// Harvester opens the quota and is 60,000,000 bytes short. Sluice adds these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_annotation_sluice_adds_what_harvester_leaves_out() {
    let beside = Beside::with("short", tight()).await;
    let vm = vm1(&beside.scene).start().await.unwrap();
    let migration = vm.migrate().await.unwrap();
    let opened = || async { (beside.harvester.spec_writes() == 1).then_some(()) };
    wait::eventually(SOON, opened, "Harvester to open the quota").await.unwrap();
    let enforced = |quota: &ResourceQuota| hard(quota)["limits.memory"].0 == "9239930626";
    beside.scene.tenant.until_quota(QUOTA, "what Harvester added", enforced).await;
    migration.until_rejected().await.unwrap();
    assert!(migration.target_pod().await.unwrap().is_none(), "it is too little");
    beside.scene.tenant.unlimited().await;
    beside.ends_well(&vm, &migration).await;
    assert_eq!(beside.harvester.spec_writes(), 2);
}

/// Whichever of them is first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_annotation_both_at_once_do_not_hinder_each_other() {
    let beside = Beside::with("both", roomy()).await;
    beside.scene.tenant.unlimited().await;
    let vm = vm1(&beside.scene).start().await.unwrap();
    for _ in 0..3 {
        let migration = vm.migrate().await.unwrap();
        beside.ends_well(&vm, &migration).await;
    }
    let written = beside.harvester.spec_writes();
    assert!(written >= 2, "Harvester has raised and lowered the quota too: {written} writes");
}
