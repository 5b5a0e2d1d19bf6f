//! Sluice beside Harvester's own scaler, with and without the annotation that turns
//! it off for a quota (`docs/harvester.md`).

use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::simulated_harvester::{COMPENSATION, MIGRATING, SKIP, SimulatedHarvester};
use sluice_e2e::simulated_rancher::Validator;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_e2e::tenant::{SOON, Tenant, amount, hard, spec_hard, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript, Vm, VmBuilder};
use sluice_testbed::wait;

use super::{QUOTA, thirteen_keys, two_cores};
use crate::tenants::quota_history::{QuotaHistory, exact};
use crate::tenants::scene::{Amounts, Scene, amounts, machine};

/// What Harvester's formula adds to the memory limit of a machine with 2 cores, 4Gi and 2730Mi. The container
/// `guest-console-log` of its pod has 15m and 60,000,000 bytes more.
const OVERHEAD: &str = "294998017";
/// The same at a ratio of 4.5: the report's test 2.
const OVERHEAD_LARGER: &str = "1327494017";
/// What it adds to the machine of the first report, which is smaller here by what KubeVirt adds more.
const OVERHEAD_OF_TWO_CORES: &str = "294883552";
/// How long another webhook takes for each pod.
const SLOW: Duration = Duration::from_secs(1);

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
        Self::on(scene, base, OVERHEAD)
    }

    /// `base` is what the namespace's annotation says of CPU and memory.
    fn on(scene: Scene, base: Amounts, overhead: &str) -> Self {
        let (bed, namespace) = (scene.tenant.bed, scene.tenant.name());
        let harvester = SimulatedHarvester::start(bed, namespace, &base, overhead).unwrap();
        Self { scene, harvester, base }
    }

    /// The migration succeeds. Then the quota is as at the beginning, and nothing is above it.
    async fn ends_well(&self, vm: &Vm, migration: &Migration) {
        migration.until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        self.until_closed().await;
        let within = |quota: &ResourceQuota| {
            self.base.keys().all(|key| amount(&used(quota), key) <= amount(&spec_hard(quota), key))
        };
        self.scene.tenant.until_quota(QUOTA, "to have nothing above it", within).await;
    }

    /// The quota's spec is as at the beginning and in force, and Harvester records nothing. Sluice has not written it.
    async fn until_closed(&self) -> ResourceQuota {
        let as_before = |quota: &ResourceQuota| {
            let spec = spec_hard(quota);
            let is_record = |key: &String| key.starts_with(MIGRATING) || key == COMPENSATION;
            hard(quota) == spec
                && !quota.annotations().keys().any(is_record)
                && self.base.iter().all(|(key, text)| amount(&spec, key) == exact(text))
        };
        let quota = self.scene.tenant.until_quota(QUOTA, "to be as before", as_before).await;
        AuditTrail::of(&self.scene.tenant).await.assert_no_spec_written();
        assert!(self.harvester.is_acting());
        quota
    }

    /// The quota enforces exactly this, which Harvester has written.
    async fn until_enforced(&self, cpu: &str, memory: &str) -> ResourceQuota {
        let is_so = |quota: &ResourceQuota| {
            let enforced = hard(quota);
            enforced == spec_hard(quota)
                && amount(&enforced, "limits.cpu") == exact(cpu)
                && amount(&enforced, "limits.memory") == exact(memory)
        };
        self.scene.tenant.until_quota(QUOTA, &format!("{cpu} and {memory}"), is_so).await
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

/// As in a cluster with more to do: Harvester sees each migration while it waits for its target.
async fn slow(tenant: &Tenant<'_>) -> SimulatedWebhook {
    let options =
        WebhookOptions::new("slow.simulated.test", tenant.name(), vec![rule(&["CREATE"], &["pods"])]);
    let slow = SimulatedWebhook::start(tenant.bed, options, |_| Verdict::allow().after(SLOW));
    slow.await.unwrap()
}

/// The states of the quota in the report: opened for a migration, closed at its end while the source is still counted, and
/// with one pod.
#[rstest]
#[case::in_a_quota_with_room("30", "60Gi", "32", "68955754497")]
#[case::in_a_full_quota("2", "4531245057", "4", "9062490114")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harvester_opens_and_closes_the_quota_of_the_report(
    #[case] cpu: &str,
    #[case] memory: &str,
    #[case] opened_cpu: &str,
    #[case] opened_memory: &str,
) {
    const ONE: [(&str, &str); 3] = [("limits.cpu", "2"), ("limits.memory", "4531245057"), ("pods", "1")];
    const BOTH: [(&str, &str); 3] = [("limits.cpu", "4"), ("limits.memory", "9062490114"), ("pods", "2")];
    let scene = Scene::new("test-migration", Validator::Absent).await;
    let base = amounts(&[("limits.cpu", cpu), ("limits.memory", memory)]);
    scene.quota(QUOTA, &thirteen_keys(&[("limits.cpu", cpu), ("limits.memory", memory)])).await;
    let beside = Beside::on(scene, base, OVERHEAD_OF_TWO_CORES);
    let tenant = &beside.scene.tenant;
    tenant.unlimited().await;
    let vm = two_cores(tenant, "vm1").script(MigrationScript::Hold).start().await.unwrap();
    let slow = slow(tenant).await;
    beside.scene.until_used(QUOTA, &ONE).await;
    let migration = vm.migrate().await.unwrap();
    migration.until(MigrationPhase::Running).await.unwrap();
    let opened = beside.until_enforced(opened_cpu, opened_memory).await;
    let recorded = format!("{MIGRATING}{}", vm.object().await.unwrap().uid().unwrap());
    let recorded: serde_json::Value = serde_json::from_str(&opened.annotations()[&recorded]).unwrap();
    assert_eq!(recorded, json!({ "limits.cpu": "2", "limits.memory": "4531245057" }));
    beside.scene.until_used(QUOTA, &BOTH).await;
    vm.follow(MigrationScript::KeepSource).await.unwrap();
    migration.until_succeeded().await.unwrap();
    beside.until_closed().await;
    beside.scene.until_used(QUOTA, &BOTH).await;
    vm.release().await.unwrap();
    beside.ends_well(&vm, &migration).await;
    beside.scene.until_used(QUOTA, &ONE).await;
    assert_none_rejected(tenant).await;
    assert_eq!(beside.harvester.spec_writes(), 2);
    slow.stop().await.unwrap();
}

/// The second migration of the report's test 2. Harvester 1.9 compensates what its formula leaves out once KubeVirt says
/// that the quota has rejected it; with head-room nothing is rejected.
#[rstest]
#[case::harvester_alone(false)]
#[case::beside_sluice(true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_outgrew_its_quota_migrates_beside_harvesters_compensation(#[case] headroom: bool) {
    const LARGER: [(&str, &str); 2] = [("limits.cpu", "2015m"), ("limits.memory", "5682461313")];
    let scene = Scene::with_overhead_ratio("compensated", Validator::Absent, "1.5").await;
    scene.quota(QUOTA, &roomy()).await;
    let beside = Beside::on(scene, roomy(), OVERHEAD_LARGER);
    let scene = &beside.scene;
    let vm = vm1(scene).start().await.unwrap();
    scene.bed_use().overhead_ratio(Some("4.5")).await;
    // What Harvester adds for the larger one is enough as long as the smaller one is counted.
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    beside.until_closed().await;
    scene.until_used(QUOTA, &LARGER).await;
    let (rejected, written) = (scene.tenant.rejected_attempts().await, beside.harvester.spec_writes());
    if headroom {
        scene.tenant.unlimited().await;
    }
    vm.follow(MigrationScript::Hold).await.unwrap();
    let slow = slow(&scene.tenant).await;
    let migration = vm.migrate().await.unwrap();
    migration.until(MigrationPhase::Running).await.unwrap();
    if !headroom {
        let opened = beside.until_enforced("5", "11439140354").await;
        let recorded: serde_json::Value = serde_json::from_str(&opened.annotations()[COMPENSATION]).unwrap();
        assert_eq!(recorded, json!({ "limits.memory": "573799041" }));
    }
    scene.until_used(QUOTA, &[("limits.cpu", "4030m"), ("limits.memory", "11364922626")]).await;
    vm.release().await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    beside.until_closed().await;
    scene.until_used(QUOTA, &LARGER).await;
    let attempts = scene.tenant.rejected_attempts().await - rejected;
    assert_eq!(attempts == 0, headroom, "{attempts} attempts were rejected");
    assert!(beside.harvester.spec_writes() >= written + 2, "it opened the quota and closed it");
    slow.stop().await.unwrap();
}
