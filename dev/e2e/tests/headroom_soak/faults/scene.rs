//! A virtual machine that fills two quotas.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_e2e::objects;
use sluice_e2e::tenant::{Tenant, hard, spec_hard, used};
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::{Migration, Vm};

use crate::faults::gate::OWN_WEBHOOK;
use crate::faults::invariants::Invariants;

/// The quotas of every scene.
pub const QUOTAS: [(&str, &[&str]); 2] = [("a", &["requests.memory"]), ("b", &["requests.cpu", "pods"])];

/// A virtual machine `web` and two quotas in which nothing more fits.
pub struct Scene {
    pub tenant: Tenant<'static>,
    pub vm: Vm,
    full: BTreeMap<&'static str, BTreeMap<String, Quantity>>,
}

impl Scene {
    /// Without any head-room.
    pub async fn full(bed: &'static Bed, prefix: &str) -> Self {
        let tenant = Tenant::on(bed, prefix).await;
        let vm = tenant.vm("web").await;
        let mut full = BTreeMap::new();
        for (name, keys) in QUOTAS {
            full.insert(name, spec_hard(&tenant.full_quota(name, keys).await));
        }
        Self { tenant, vm, full }
    }

    /// With head-room for everything.
    pub async fn unlimited(bed: &'static Bed, prefix: &str) -> Self {
        let scene = Self::full(bed, prefix).await;
        scene.tenant.unlimited().await;
        scene
    }

    /// As [`Self::unlimited`], in a namespace whose targets the shared webhook is not asked about.
    pub async fn with_own_webhook(bed: &'static Bed, prefix: &str) -> Self {
        let scene = Self::unlimited(bed, prefix).await;
        let label = Patch::Merge(json!({ "metadata": { "labels": { OWN_WEBHOOK: "true" } } }));
        let namespaces: Api<Namespace> = Api::all(scene.tenant.client.clone());
        namespaces.patch(scene.tenant.name(), &PatchParams::default(), &label).await.unwrap();
        scene
    }

    /// Starts a migration and sees it through.
    pub async fn migrate_through(&self) -> Invariants {
        let migration = self.vm.migrate().await.unwrap();
        self.through(&migration).await
    }

    /// The migration succeeds, everything is put back, and nothing happened that must not.
    pub async fn through(&self, migration: &Migration) -> Invariants {
        self.settled(migration).await;
        let invariants = Invariants::of(self.tenant.bed, self.tenant.name()).await;
        invariants.holds(1);
        invariants
    }

    /// The migration succeeds and everything is put back.
    pub async fn settled(&self, migration: &Migration) {
        migration.until_succeeded().await.unwrap();
        self.tenant.until_clear().await;
    }

    /// As [`Self::settled`], of a migration for which KubeVirt's controller rests longer and longer after each refusal.
    pub async fn settled_when_woken(&self, migration: &Migration) {
        self.tenant.let_in_when_woken("a", migration).await;
        self.settled(migration).await;
    }

    /// As it was at the beginning: the quotas exist, say what they said, and are full.
    pub async fn reset(&self) {
        self.vm.until_alone().await.unwrap();
        for (name, wanted) in &self.full {
            let spec = json!({ "hard": wanted });
            if self.tenant.quotas.get_opt(name).await.unwrap().is_none() {
                self.create_quota(name, &spec).await;
            }
            self.set_spec(name, &spec).await;
            let is = |quota: &ResourceQuota| {
                hard(quota) == *wanted && spec_hard(quota) == *wanted && used(quota) == *wanted
            };
            self.tenant.until_quota(name, "to be full again", is).await;
        }
    }

    pub async fn create_quota(&self, name: &str, spec: &Value) {
        let quota = objects::from_json(json!({"metadata": {"name": name}, "spec": spec}));
        self.tenant.quotas.create(&PostParams::default(), &quota).await.unwrap();
    }

    pub async fn set_spec(&self, name: &str, spec: &Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.tenant.quotas.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete_quota(&self, name: &str) {
        self.tenant.quotas.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The spec of a quota as it was at the beginning.
    pub fn spec(&self, name: &str) -> Value {
        json!({ "hard": self.full[name] })
    }
}
