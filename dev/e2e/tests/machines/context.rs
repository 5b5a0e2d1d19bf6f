//! What the tests share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{AAQ, ApplicationAwareResourceQuota as Arq};
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::history::History;
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::tenant::{Tenant, own_shared};
use sluice_e2e::{Running, Setup};
use sluice_testbed::kubevirt::{KubeVirt, MigrationPhase, Vm};
use sluice_testbed::{Bed, wait};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// How long anything may take that should take milliseconds: the machine may be busy with other tests.
pub const SOON: Duration = Duration::from_secs(120);

/// What the default calculator counts.
pub const VMI: [&str; 3] = ["requests.instances/vmi", "requests.cpu/vmi", "requests.memory/vmi"];

/// Whether a test has configured KubeVirt.
static CONFIGURED: AtomicBool = AtomicBool::new(false);

/// The shared cluster, started by the first that asks.
pub async fn shared() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    SHARED
        .get_or_init(|| async {
            let controller_args = vec!["--in-flight-grace=3".to_owned()];
            Running::on(own_shared().await, Setup { controller_args, ..Setup::default() }).await.unwrap()
        })
        .await
}

/// The shared cluster as long as VMs are counted by this calculator, which is one for all.
pub struct Counting {
    pub running: &'static Running<'static>,
    _turn: MutexGuard<'static, ()>,
}

impl Counting {
    /// Waits until no other test counts otherwise.
    pub async fn by(calculator: &str) -> Self {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let counting = Self { running: shared().await, _turn: turn };
        if CONFIGURED.swap(false, Ordering::SeqCst) {
            let migrations = json!({
                "parallelMigrationsPerCluster": 100, "parallelOutboundMigrationsPerNode": 100,
                "completionTimeoutPerGiB": null, "progressTimeout": null,
            });
            let usual = json!({ "migrations": migrations, "additionalGuestMemoryOverheadRatio": null });
            counting.kubevirt().configure(usual).await.unwrap();
        }
        counting.switch(calculator).await;
        counting
    }

    pub fn kubevirt(&self) -> KubeVirt<'static> {
        self.running.bed.kubevirt().unwrap()
    }

    /// Merges into KubeVirt's configuration; the next test has the usual one again.
    pub async fn configure(&self, configuration: Value) {
        CONFIGURED.store(true, Ordering::SeqCst);
        self.kubevirt().configure(configuration).await.unwrap();
    }

    /// From now on VMs are counted by this one.
    pub async fn switch(&self, calculator: &str) {
        count_by(self.running.bed, calculator).await;
    }

    /// A fresh targeted namespace.
    pub async fn team(&self, prefix: &str) -> Team {
        self.team_of(prefix, &[]).await
    }

    /// A fresh targeted namespace with further labels.
    pub async fn team_of(&self, prefix: &str, labels: &[(&str, &str)]) -> Team {
        Team::on(self.running.bed, prefix, labels).await
    }
}

/// From now on VMs of a cluster are counted by this one.
pub async fn count_by(bed: &Bed, calculator: &str) {
    let aaqs: Api<AAQ> = Api::all(bed.admin().unwrap());
    let aaq = json!({
        "apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "AAQ", "metadata": { "name": "aaq" },
        "spec": { "configuration": {
            "vmiCalculatorConfiguration": { "configName": calculator },
            "allowApplicationAwareClusterResourceQuota": true,
        }},
    });
    aaqs.patch("aaq", &PatchParams::apply("test").force(), &Patch::Apply(aaq)).await.unwrap();
}

/// A targeted namespace.
pub struct Team {
    pub tenant: Tenant<'static>,
    arqs: Api<Arq>,
}

impl Team {
    /// A fresh targeted namespace with further labels.
    pub async fn on(bed: &'static Bed, prefix: &str, labels: &[(&str, &str)]) -> Self {
        let labels: Vec<_> = TARGETED.iter().chain(labels).copied().collect();
        let tenant = Tenant::with(bed, prefix, &labels).await;
        Self { arqs: Api::namespaced(tenant.client.clone(), tenant.name()), tenant }
    }

    pub async fn quota(&self, name: &str, hard: &[(&str, &str)]) {
        objects::create(&self.tenant.client, self.tenant.name(), &objects::quota(name, hard)).await.unwrap();
    }

    pub async fn set_hard(&self, quota: &str, key: &str, hard: &str) {
        let patch = Patch::Merge(json!({ "spec": { "hard": { key: hard } } }));
        self.arqs.patch(quota, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the status of a quota says that these are used.
    pub async fn until_used(&self, quota: &str, used: &[(&str, &str)]) {
        let says = |quota: Option<&Arq>| {
            let status = quota.and_then(|quota| quota.status.as_ref());
            status.is_some_and(|status| {
                used.iter().all(|(key, used)| status.used.get(*key).is_some_and(|is| is.0 == *used))
            })
        };
        let what = format!("{used:?} to be used");
        wait::wait_for(&self.arqs, quota, SOON, &what, says).await.unwrap();
    }

    /// Waits until the status of a quota says what is used of this; returns that.
    pub async fn until_any_used(&self, quota: &str, key: &str) -> String {
        let used = |quota: &Arq| quota.status.as_ref()?.used.get(key).map(|is| is.0.clone());
        let says = |quota: Option<&Arq>| quota.is_some_and(|quota| used(quota).is_some_and(|is| is != "0"));
        let quota =
            wait::wait_for(&self.arqs, quota, SOON, &format!("{key} to be used"), says).await.unwrap();
        quota.as_ref().and_then(used).unwrap()
    }

    /// What the status of a quota says now.
    pub async fn used(&self, quota: &str, key: &str) -> String {
        let status = self.arqs.get(quota).await.unwrap().status.unwrap();
        status.used[key].0.clone()
    }

    /// Watches the quotas from now on.
    pub async fn watch(&self) -> History<Arq> {
        History::of(self.arqs.clone()).await
    }

    /// Has the status of a quota written, by another limit of something of which guests take nothing: a watch sees what is
    /// used now, however short that lasts.
    pub async fn until_written(&self, quota: &str, limit: &str) {
        let key = "requests.ephemeral-storage";
        self.set_hard(quota, key, limit).await;
        let says = |quota: Option<&Arq>| {
            let status = quota.and_then(|quota| quota.status.as_ref());
            status.and_then(|status| status.hard.get(key)).is_some_and(|hard| hard.0 == limit)
        };
        wait::wait_for(&self.arqs, quota, SOON, "the status to be written", says).await.unwrap();
    }

    /// Waits until a pod of the VM is held; returns it.
    pub async fn until_held(&self, vm: &str) -> Pod {
        let held = || async {
            let label = ListParams::default().labels(&format!("vm.kubevirt.io/name={vm}"));
            self.tenant.pods.list(&label).await.ok()?.items.into_iter().find(is_held)
        };
        wait::eventually(SOON, held, &format!("a pod of {vm} to be held")).await.unwrap()
    }

    /// Waits until it is told why a pod is held; returns the words.
    pub async fn until_told(&self, pod: &Pod) -> String {
        self.until_told_of(pod.metadata.uid.as_deref()).await
    }

    /// Waits until it is told why the object with this uid is held, or its pod is; returns the words.
    pub async fn until_told_of(&self, uid: Option<&str>) -> String {
        let events: Api<Event> = Api::namespaced(self.tenant.client.clone(), self.tenant.name());
        let told = || async {
            let events = events.list(&ListParams::default()).await.ok()?.items.into_iter();
            let about = |event: &Event| {
                event.regarding.as_ref().and_then(|it| it.uid.as_deref()) == uid
                    && event.reporting_controller.as_deref().is_some_and(|by| by.contains("sluice"))
            };
            events.filter(about).find_map(|event| event.note)
        };
        wait::eventually(SOON, told, "to be told why the pod is held").await.unwrap()
    }

    /// No pod of KubeVirt's was refused by whatever, and Sluice wrote no native quota's spec.
    pub async fn assert_nothing_refused(&self, vms: &[Vm]) {
        assert_none_rejected(&self.tenant).await;
        AuditTrail::of(&self.tenant).await.assert_no_spec_written();
        for vm in vms {
            assert!(vm.events("FailedCreate").await.unwrap().is_empty(), "{}", vm.name());
        }
    }
}

/// Ends a watch: each version of the quota said that this is used, and of no less.
pub async fn assert_always_used(watch: History<Arq>, quota: &str, used: &[(&str, &str)]) {
    for version in watch.end().await.versions(quota) {
        let status = version.status.as_ref().unwrap();
        for (key, amount) in used {
            let said = [&status.used, &status.hard].map(|amounts| amounts[*key].0.as_str());
            assert_eq!(said, [*amount; 2], "used and hard of {key}: {version:#?}");
        }
    }
}

/// Waits until the guests, which follow `MigrationScript::Hold`, are being transferred: each has two launchers that run.
pub async fn until_under_way(vms: &[Vm]) {
    for vm in vms {
        let migration = vm.until_migration(&[]).await.unwrap();
        migration.until(MigrationPhase::Running).await.unwrap();
    }
}

/// Waits until the VM has migrated as KubeVirt's controller has asked for, once.
pub async fn until_migrated_once(vm: &Vm) {
    let migration = vm.until_migration(&[]).await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    assert_eq!(vm.migrations().await.unwrap().len(), 1, "{}", vm.name());
    assert!(!migration.rejected().await.unwrap(), "{}", vm.name());
}
