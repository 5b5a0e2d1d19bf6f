//! A namespace with virtual machines and native quotas, on a cluster with KubeVirt and Sluice.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{HeadroomPolicy, VirtualMachineMigrationResourceQuota};
use sluice_engine::{Amount, Quantity as Exact};
use sluice_testbed::kubevirt::{KubeVirt, Migration, MigrationPhase, Vm};
use sluice_testbed::{Bed, BedOptions, TestNamespace, wait};
use tokio::sync::OnceCell;

use crate::{Running, Setup};

/// How long anything may take that should take milliseconds: the machine may be busy with other tests.
pub const SOON: Duration = Duration::from_secs(60);

/// The shared cluster, started by the first that asks. Any number of migrations may run in it.
pub async fn shared() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    SHARED
        .get_or_init(|| async {
            let bed = Bed::shared_with_kubevirt().await.unwrap();
            prepare(bed).await;
            Running::on(bed, Setup::default()).await.unwrap()
        })
        .await
}

/// A cluster of one's own with KubeVirt, for tests that stop, slow or break something.
pub async fn own() -> Bed {
    let bed = Bed::start(BedOptions { kubevirt: true, ..BedOptions::default() }).await.unwrap();
    prepare(&bed).await;
    bed
}

/// As [`own`], for several tests that take turns; it lasts as long as the process.
pub async fn own_shared() -> &'static Bed {
    let options = BedOptions { kubevirt: true, ..BedOptions::default() };
    let bed = Bed::start_shared(options).await.unwrap();
    prepare(bed).await;
    bed
}

/// Nodes for virtual machines, and no limit to how many migrate at once.
pub async fn prepare(bed: &Bed) {
    let kubevirt = bed.kubevirt().unwrap();
    kubevirt.add_nodes(3).await.unwrap();
    kubevirt.migrate_at_a_time(100, 100).await.unwrap();
}

/// A namespace with virtual machines and quotas.
pub struct Tenant<'b> {
    pub bed: &'b Bed,
    pub kubevirt: KubeVirt<'b>,
    pub namespace: TestNamespace,
    pub client: Client,
    pub quotas: Api<ResourceQuota>,
    pub pods: Api<Pod>,
}

impl<'b> Tenant<'b> {
    /// A fresh namespace on `bed`.
    pub async fn on(bed: &'b Bed, prefix: &str) -> Self {
        Self::with(bed, prefix, &[]).await
    }

    /// A fresh namespace with these labels.
    pub async fn with(bed: &'b Bed, prefix: &str, labels: &[(&str, &str)]) -> Self {
        let namespace = bed.namespace(prefix, labels).await.unwrap();
        let client = bed.admin().unwrap();
        Self {
            bed,
            kubevirt: bed.kubevirt().unwrap(),
            quotas: Api::namespaced(client.clone(), &namespace.name),
            pods: Api::namespaced(client.clone(), &namespace.name),
            namespace,
            client,
        }
    }

    pub fn name(&self) -> &str {
        &self.namespace.name
    }

    /// A running virtual machine with 256Mi.
    pub async fn vm(&self, name: &str) -> Vm {
        self.kubevirt.vm(self.name(), name).start().await.unwrap()
    }

    /// A ResourceQuota; returns when its status is there.
    pub async fn quota(&self, name: &str, hard: Value) -> ResourceQuota {
        self.quota_spec(name, json!({ "hard": hard })).await
    }

    /// A ResourceQuota with any spec; returns when its status is there.
    pub async fn quota_spec(&self, name: &str, spec: Value) -> ResourceQuota {
        let quota = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.quotas.create(&PostParams::default(), &quota).await.unwrap();
        self.until_quota(name, "its first status", |quota| !used(quota).is_empty()).await
    }

    /// A quota of what is used now: not one pod more fits.
    pub async fn full_quota(&self, name: &str, keys: &[&str]) -> ResourceQuota {
        let full = self.quota(name, json!(self.usage(keys).await)).await;
        assert_eq!(used(&full), spec_hard(&full), "full");
        full
    }

    /// What is used now, as Kubernetes counts it.
    pub async fn usage(&self, keys: &[&str]) -> BTreeMap<String, Quantity> {
        let probe = keys
            .iter()
            .map(|key| ((*key).to_owned(), json!("1000000000")))
            .collect::<serde_json::Map<_, _>>();
        self.quota("usage", Value::Object(probe)).await;
        let pods = self.pods.list(&ListParams::default()).await.unwrap().items.len();
        let counted = |quota: &ResourceQuota| pods == 0 || used(quota).values().all(|amount| amount.0 != "0");
        let probe = self.until_quota("usage", "usage to be counted", counted).await;
        self.quotas.delete("usage", &Default::default()).await.unwrap();
        used(&probe)
    }

    pub async fn until_quota(
        &self,
        name: &str,
        what: &str,
        when: impl Fn(&ResourceQuota) -> bool,
    ) -> ResourceQuota {
        let what = format!("quota {name}: {what}");
        let found = std::sync::Mutex::new(None);
        wait::wait_for(&self.quotas, name, SOON, &what, |quota| {
            let there = quota.filter(|quota| when(quota)).cloned();
            let is_there = there.is_some();
            *found.lock().unwrap() = there;
            is_there
        })
        .await
        .unwrap();
        found.into_inner().unwrap().unwrap()
    }

    /// Waits until every quota enforces its spec and none is marked.
    pub async fn until_clear(&self) {
        let clear = || async {
            let quotas = self.quotas.list(&ListParams::default()).await.ok()?.items;
            quotas.iter().all(|quota| hard(quota) == spec_hard(quota)).then_some(())
        };
        wait::eventually(SOON, clear, "every quota to be restored").await.unwrap();
    }

    /// A budget of managed-tenant-quota's kind.
    pub async fn vmmrq(&self, name: &str, amounts: Value) {
        let object: VirtualMachineMigrationResourceQuota = serde_json::from_value(json!({
            "apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
            "metadata": {"name": name}, "spec": {"additionalMigrationResources": amounts},
        }))
        .unwrap();
        let api: Api<VirtualMachineMigrationResourceQuota> =
            Api::namespaced(self.client.clone(), self.name());
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// An unlimited budget for this namespace alone.
    pub async fn unlimited(&self) {
        self.policy(json!({"mode": "Unlimited"})).await;
    }

    /// A HeadroomPolicy of this namespace's name that selects it alone.
    pub async fn policy(&self, budget: Value) -> HeadroomPolicy {
        let object: HeadroomPolicy = serde_json::from_value(json!({
            "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy",
            "metadata": {"name": self.name()},
            "spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.name()}}, "budget": budget},
        }))
        .unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap()
    }

    /// KubeVirt's controller is woken until it has let the migration's target in, as it is whenever a quota changes: after
    /// each refusal it rests longer.
    pub async fn let_in_when_woken(&self, quota: &str, migration: &Migration) {
        let woken = || async {
            let now = Timestamp::now().as_millisecond().to_string();
            let touch = Patch::Merge(json!({ "metadata": { "labels": { "touched": now } } }));
            self.quotas.patch(quota, &PatchParams::default(), &touch).await.unwrap();
            let through = migration.until(MigrationPhase::Scheduling);
            tokio::time::timeout(Duration::from_secs(1), through).await.ok()?.ok().map(drop)
        };
        wait::eventually(SOON, woken, "the target to be let in").await.unwrap();
    }

    /// How many times virt-controller was refused a pod in this namespace.
    pub async fn rejected_attempts(&self) -> usize {
        self.bed.rejected_attempts(self.name()).await.unwrap().len()
    }
}

pub fn spec_hard(quota: &ResourceQuota) -> BTreeMap<String, Quantity> {
    quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default()
}

pub fn hard(quota: &ResourceQuota) -> BTreeMap<String, Quantity> {
    quota.status.as_ref().and_then(|status| status.hard.clone()).unwrap_or_default()
}

pub fn used(quota: &ResourceQuota) -> BTreeMap<String, Quantity> {
    quota.status.as_ref().and_then(|status| status.used.clone()).unwrap_or_default()
}

/// An amount of a map as an exact number.
pub fn amount(amounts: &BTreeMap<String, Quantity>, key: &str) -> Amount {
    Amount::from(Exact::parse(&amounts[key].0).unwrap())
}
