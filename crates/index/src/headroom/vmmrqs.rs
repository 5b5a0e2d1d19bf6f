//! `VirtualMachineMigrationResourceQuota`s: what namespaces grant to migrations.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::headroom::Amounts;

use super::store::{Indexed, Record, Store};
use super::texts::read_amounts;
use crate::wire::VmmrqWire;

/// So many keys of a grant count; the CRD allows no more.
pub(super) const MAX_KEYS: usize = 64;

/// What is kept of a `VirtualMachineMigrationResourceQuota`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmmrq {
    /// `spec.additionalMigrationResources`, as far as it can be read.
    pub additional: Amounts,
    /// What could not be read.
    pub errors: Vec<String>,
}

/// A `VirtualMachineMigrationResourceQuota`.
pub type VmmrqRecord = Record<Vmmrq>;

/// All `VirtualMachineMigrationResourceQuota`s.
#[derive(Debug, Default)]
pub struct Vmmrqs {
    store: Store<Vmmrq>,
}

impl Vmmrqs {
    /// One by its name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VmmrqRecord>> {
        self.store.get(namespace, name)
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
        Vmmrq { additional, errors }
    }
}
