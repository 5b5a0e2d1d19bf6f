//! A namespace with Rancher's quota and a pod that is tried all the time, and what holds in every scenario.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::simulated_rancher::{SimulatedRancher, Validator};
use sluice_e2e::tenant::{SOON, Tenant, hard, shared, used};
use sluice_testbed::kubevirt::{MigrationPhase, Vm, VmBuilder};
use sluice_testbed::wait;
use tokio::task::JoinHandle;

use crate::tenants::quota_history::{QuotaHistory, SeenQuotas};
use crate::tenants::second_bed::{self, BedUse};

/// Amounts by key.
pub type Amounts = BTreeMap<String, String>;

/// Time between two tries of the bystander.
const RETRIED_EVERY: Duration = Duration::from_millis(20);

pub fn amounts(pairs: &[(&str, &str)]) -> Amounts {
    pairs.iter().map(|&(key, amount)| (key.to_owned(), amount.to_owned())).collect()
}

/// A namespace with a Rancher that owns its quota.
pub struct Scene {
    pub tenant: Tenant<'static>,
    pub rancher: Arc<SimulatedRancher>,
    validator: Validator,
    _use: Option<BedUse>,
}

/// What is recorded while a scenario runs.
pub struct Recording {
    history: QuotaHistory,
    bystander: Bystander,
}

impl Scene {
    /// With Rancher's webhook in the cluster where Sluice may write as kube-controller-manager's account, otherwise in the
    /// one where it may not.
    pub async fn new(prefix: &str, validator: Validator) -> Self {
        let bed_use = match validator {
            Validator::Absent => None,
            Validator::Present => Some(second_bed::together().await),
        };
        let bed = match &bed_use {
            Some(bed_use) => bed_use.bed,
            None => shared().await.bed,
        };
        Self::on(Tenant::on(bed, prefix).await, validator, bed_use).await
    }

    /// In the second cluster, alone, while KubeVirt has this overhead ratio.
    pub async fn with_overhead_ratio(prefix: &str, validator: Validator, ratio: &str) -> Self {
        let bed_use = second_bed::alone().await;
        bed_use.overhead_ratio(Some(ratio)).await;
        Self::on(Tenant::on(bed_use.bed, prefix).await, validator, Some(bed_use)).await
    }

    /// In the second cluster, alone, with the limits of parallel migrations that KubeVirt has by itself.
    pub async fn with_kubevirts_limits(prefix: &str, validator: Validator) -> Self {
        let bed_use = second_bed::alone().await;
        bed_use.parallel(5, 2).await;
        Self::on(Tenant::on(bed_use.bed, prefix).await, validator, Some(bed_use)).await
    }

    async fn on(tenant: Tenant<'static>, validator: Validator, bed_use: Option<BedUse>) -> Self {
        let rancher = SimulatedRancher::start(tenant.bed, tenant.name(), validator).await.unwrap();
        Self { tenant, rancher: Arc::new(rancher), validator, _use: bed_use }
    }

    /// The use of the second cluster.
    pub fn bed_use(&self) -> &BedUse {
        self._use.as_ref().expect("a scene in the second cluster")
    }

    /// Rancher's quota; returns when its status is there.
    pub async fn quota(&self, name: &str, limits: &Amounts) -> ResourceQuota {
        self.rancher.create_quota(name, limits).await.unwrap();
        let there = |quota: &ResourceQuota| !used(quota).is_empty() && !hard(quota).is_empty();
        self.tenant.until_quota(name, "its first status", there).await
    }

    /// Waits until the quota counts exactly this.
    pub async fn until_used(&self, quota: &str, amounts: &[(&str, &str)]) -> ResourceQuota {
        let counted = |quota: &ResourceQuota| {
            amounts
                .iter()
                .all(|(key, wanted)| used(quota).get(*key).is_some_and(|amount| amount.0 == *wanted))
        };
        self.tenant.until_quota(quota, &format!("{amounts:?} to be used"), counted).await
    }

    /// Starts the machines at once; returns when they run.
    pub async fn start(&self, machines: impl IntoIterator<Item = VmBuilder>) -> Vec<Vm> {
        let started = machines.into_iter().map(VmBuilder::start);
        join_all(started).await.into_iter().map(Result::unwrap).collect()
    }

    /// Has machines leave their nodes, as the drain of a node does; returns when all have migrated.
    pub async fn evacuate(&self, vms: &[Vm]) {
        self.begin_evacuation(vms).await;
        for vm in vms {
            vm.until_migration(&[]).await.unwrap().until_succeeded().await.unwrap();
            vm.until_alone().await.unwrap();
        }
    }

    /// As [`Self::evacuate`], without waiting.
    pub async fn begin_evacuation(&self, vms: &[Vm]) {
        let resource = kube::api::ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"),
            "virtualmachineinstances",
        );
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.tenant.client.clone(), self.tenant.name(), &resource);
        for vm in vms {
            let patch = json!({ "status": { "evacuationNodeName": vm.node().await.unwrap() } });
            api.patch(vm.name(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }

    /// Records the quotas from now on, and tries all the time to create a pod with this CPU limit. It is to be more than is
    /// free in the quota and at most what a target needs: only a lock keeps it out of a raised quota.
    pub async fn record(&self, cpu: &str) -> Recording {
        let history = QuotaHistory::of(&self.tenant).await;
        Recording { history, bystander: Bystander::start(&self.tenant, cpu) }
    }

    /// What holds at the end of every scenario: the quotas enforce their specs and carry no mark, Sluice wrote no spec, no
    /// quota enforced less than `floor`, no target was rejected, no other pod was admitted.
    pub async fn finish(&self, recording: Recording, quota: &str, floor: &Amounts) -> SeenQuotas {
        self.tenant.until_clear().await;
        recording.bystander.assert_refused().await;
        let seen = recording.history.end().await;
        seen.assert_never_below(quota, floor);
        assert_none_rejected(&self.tenant).await;
        AuditTrail::of(&self.tenant).await.assert_no_spec_written();
        if self.validator == Validator::Present {
            assert!(self.rancher.reviews() > 0, "Rancher's webhook was asked");
        }
        seen
    }
}

/// A pod that is tried again and again and must not be admitted.
struct Bystander {
    over: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    trying: JoinHandle<Option<Pod>>,
}

impl Bystander {
    fn start(tenant: &Tenant<'_>, cpu: &str) -> Self {
        let (over, refused) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (end, count) = (Arc::clone(&over), Arc::clone(&refused));
        let (pods, pod) = (tenant.pods.clone(), other_pod("bystander", cpu, "128Mi"));
        let trying = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(RETRIED_EVERY);
            while !end.load(Ordering::SeqCst) {
                ticks.tick().await;
                if let Ok(admitted) = pods.create(&PostParams::default(), &pod).await {
                    return Some(admitted);
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
            None
        });
        Self { over, refused, trying }
    }

    async fn assert_refused(self) {
        self.over.store(true, Ordering::SeqCst);
        let admitted = self.trying.await.unwrap();
        assert!(admitted.is_none(), "after {:?} refusals: {admitted:#?}", self.refused);
        assert!(self.refused.load(Ordering::SeqCst) > 0, "it was tried");
    }
}

/// Waits for an event with this reason on this kind of object.
pub async fn until_told(tenant: &Tenant<'_>, kind: &str, reason: &str) -> Event {
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let config = watcher::Config::default().fields(&format!("reason={reason},involvedObject.kind={kind}"));
    let what = format!("event {reason} on a {kind}");
    let told = wait::wait_for_all(&events, config, SOON, &what, |events| !events.is_empty()).await;
    told.unwrap().remove(0)
}

/// Something else that a quota counts: a pod with these limits, like the one that attaches a volume.
pub fn other_pod(name: &str, cpu: &str, memory: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "none", "resources": {
                "requests": { "cpu": "10m", "memory": "2M" }, "limits": { "cpu": cpu, "memory": memory },
            }}],
        },
    }))
    .unwrap()
}

/// A machine with these limits and requests.
pub fn machine(tenant: &Tenant<'_>, name: &str, limits: (u32, &str), requests: (&str, &str)) -> VmBuilder {
    let (cores, memory) = limits;
    tenant
        .kubevirt
        .vm(tenant.name(), name)
        .sockets(cores)
        .memory(memory)
        .limits(&[("cpu", &cores.to_string()), ("memory", memory)])
        .requests(&[("cpu", requests.0), ("memory", requests.1)])
}

/// Migrates once while both pods are counted: `both` is used and the quotas are as they were; then `after` is used.
pub async fn migrate_once(
    scene: &Scene,
    vm: &Vm,
    quota: &str,
    both: &[(&str, &str)],
    after: &[(&str, &str)],
) {
    vm.follow(sluice_testbed::kubevirt::MigrationScript::Hold).await.unwrap();
    let migration = vm.migrate().await.unwrap();
    migration.until(MigrationPhase::Scheduling).await.unwrap();
    scene.tenant.until_clear().await;
    scene.until_used(quota, both).await;
    vm.release().await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    scene.until_used(quota, after).await;
}
