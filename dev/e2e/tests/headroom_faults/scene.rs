//! A virtual machine that fills two quotas.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{HeadroomPolicy, VirtualMachineMigrationResourceQuota as Vmmrq};
use sluice_e2e::objects;
use sluice_e2e::tenant::{Tenant, hard, spec_hard, used};
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::{Migration, Vm};

use crate::account::Account;

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
        Self::with_fillers(bed, prefix, 0).await
    }

    /// With head-room for everything.
    pub async fn unlimited(bed: &'static Bed, prefix: &str) -> Self {
        let scene = Self::full(bed, prefix).await;
        scene.tenant.unlimited().await;
        scene
    }

    /// Without any head-room, and with a migration that was rejected for it.
    pub async fn rejected(bed: &'static Bed, prefix: &str) -> (Self, Migration) {
        let scene = Self::full(bed, prefix).await;
        let migration = scene.vm.migrate().await.unwrap();
        migration.until_rejected().await.unwrap();
        (scene, migration)
    }

    /// With so many small pods, which count too.
    pub async fn with_fillers(bed: &'static Bed, prefix: &str, count: usize) -> Self {
        let tenant = Tenant::on(bed, prefix).await;
        for n in 0..count {
            filler(&tenant, n).await;
        }
        let vm = tenant.vm("web").await;
        let mut full = BTreeMap::new();
        for (name, keys) in QUOTAS {
            full.insert(name, spec_hard(&tenant.full_quota(name, keys).await));
        }
        Self { tenant, vm, full }
    }

    pub fn client(&self) -> Client {
        self.tenant.client.clone()
    }

    pub async fn grant(&self) {
        self.tenant.vmmrq("grant", json!({"memory": "10Gi", "cpu": "10", "pods": "10"})).await;
    }

    pub async fn withdraw(&self) {
        let vmmrqs: Api<Vmmrq> = Api::namespaced(self.client(), self.tenant.name());
        vmmrqs.delete("grant", &DeleteParams::default()).await.unwrap();
    }

    pub async fn delete_policy(&self) {
        let policies: Api<HeadroomPolicy> = Api::all(self.client());
        policies.delete(self.tenant.name(), &DeleteParams::default()).await.unwrap();
    }

    /// Starts a migration and sees it through.
    pub async fn migrate_through(&self) -> Account {
        let migration = self.vm.migrate().await.unwrap();
        self.through(&migration).await
    }

    /// The migration succeeds, everything is put back, and nothing happened that must not.
    pub async fn through(&self, migration: &Migration) -> Account {
        migration.until_succeeded().await.unwrap();
        self.tenant.until_clear().await;
        let account = Account::of(self.tenant.bed, self.tenant.name()).await;
        account.holds();
        account
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

/// A small pod.
pub async fn filler(tenant: &Tenant<'_>, n: usize) {
    let pod = objects::pod(&format!("filler-{n}"), &[("cpu", "1m"), ("memory", "1Mi")]);
    tenant.pods.create(&PostParams::default(), &pod).await.unwrap();
}

pub async fn delete_filler(tenant: &Tenant<'_>, n: usize) {
    let now = DeleteParams::default().grace_period(0);
    tenant.pods.delete(&format!("filler-{n}"), &now).await.unwrap();
}
