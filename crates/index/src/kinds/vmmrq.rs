//! `VirtualMachineMigrationResourceQuota`s: what namespaces grant to migrations.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use sluice_api::{
    VirtualMachineMigrationResourceQuota, VirtualMachineMigrationResourceQuotaStatus as VmmrqStatus,
};
use sluice_engine::headroom::Amounts;

use crate::amounts::{RawAmounts, read_amounts};
use crate::quantity::{ResourceTexts, resource_list};
use crate::stated::Stated;
use crate::store::{Indexed, Record, Store};

/// A `VirtualMachineMigrationResourceQuota`.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = VirtualMachineMigrationResourceQuota)]
pub struct VmmrqWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
    /// What is granted.
    #[serde(default)]
    pub spec: VmmrqSpecWire,
    /// The status; `None` if it cannot be read, or is not kept.
    #[serde(default = "crate::stated::empty", deserialize_with = "crate::stated::readable")]
    pub status: Option<VmmrqStatus>,
}

/// `spec` of a `VirtualMachineMigrationResourceQuota`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmmrqSpecWire {
    /// Amounts by key of a ResourceQuota.
    #[serde(default, deserialize_with = "resource_list")]
    pub additional_migration_resources: ResourceTexts,
}

/// So many keys of a grant count; the CRD allows no more.
pub(super) const MAX_KEYS: usize = 64;

/// What is kept of a `VirtualMachineMigrationResourceQuota`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vmmrq {
    /// `spec.additionalMigrationResources`, as far as it can be read.
    pub additional: Amounts,
    /// What could not be read.
    pub errors: Vec<String>,
    /// What conditions are written from; `None` if the status cannot be read, or is not kept.
    pub stated: Option<Arc<Stated<VmmrqStated>>>,
}

/// What the status of a `VirtualMachineMigrationResourceQuota` is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmmrqStated {
    /// `spec.additionalMigrationResources` as it is written, which the status repeats.
    pub granted: RawAmounts,
    pub status: VmmrqStatus,
}

/// A `VirtualMachineMigrationResourceQuota`.
pub type VmmrqRecord = Record<Vmmrq>;

/// All `VirtualMachineMigrationResourceQuota`s.
#[derive(Debug, Default)]
pub struct Vmmrqs {
    store: Store<Vmmrq>,
}

impl Vmmrqs {
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VmmrqRecord>> {
        self.store.get(namespace, name)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<VmmrqRecord>> {
        self.store.iter()
    }

    /// Those of a namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> &[Arc<VmmrqRecord>] {
        self.store.in_namespace(namespace)
    }
}

impl Indexed for Vmmrqs {
    type Wire = VmmrqWire;
    type Body = Vmmrq;

    fn store_mut(&mut self) -> &mut Store<Vmmrq> {
        &mut self.store
    }
    fn meta(wire: &VmmrqWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &VmmrqWire) -> Vmmrq {
        let (additional, errors) = read_amounts(&wire.spec.additional_migration_resources, MAX_KEYS);
        let granted = wire.spec.additional_migration_resources.iter();
        let stated = wire.status.clone().map(|status| VmmrqStated {
            granted: granted.map(|(key, text)| (key.clone(), text.0.clone())).collect(),
            status,
        });
        Vmmrq { additional, errors, stated: Stated::of(&wire.metadata, stated.as_ref()) }
    }
}
