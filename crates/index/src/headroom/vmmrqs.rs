//! `VirtualMachineMigrationResourceQuota`s: what namespaces grant to migrations.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::headroom::Amounts;

use super::store::{Indexed, Record, Store};
use super::texts::{RawAmounts, read_amounts};
use crate::wire::{RecordedConditionWire, ResourceTexts, VmmrqWire};

/// So many keys of a grant count; the CRD allows no more.
pub(super) const MAX_KEYS: usize = 64;

/// What is kept of a `VirtualMachineMigrationResourceQuota`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmmrq {
    /// `spec.additionalMigrationResources`, as far as it can be read.
    pub additional: Amounts,
    /// What could not be read.
    pub errors: Vec<String>,
    /// `spec.additionalMigrationResources` as it is written.
    pub wanted: RawAmounts,
    /// `status.additionalMigrationResources` as it is written.
    pub recorded: RawAmounts,
    /// `status.originalBlockingResourceQuotas`: what managed-tenant-quota left raised.
    pub originals: Box<[OriginalQuota]>,
    /// `status.observedGeneration`.
    pub observed_generation: Option<i64>,
    /// `status.conditions`.
    pub conditions: Box<[RecordedConditionWire]>,
}

/// A ResourceQuota as it was before managed-tenant-quota raised it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginalQuota {
    /// Its name.
    pub name: Box<str>,
    /// Its `spec.hard`.
    pub hard: RawAmounts,
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

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<VmmrqRecord>> {
        self.store.iter()
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
        let originals = wire.status.original_blocking_resource_quotas.iter().flatten();
        Vmmrq {
            additional,
            errors,
            wanted: raw(&wire.spec.additional_migration_resources),
            recorded: raw(&wire.status.additional_migration_resources),
            originals: originals
                .map(|original| OriginalQuota {
                    name: original.name.as_str().into(),
                    hard: raw(&original.spec.hard),
                })
                .collect(),
            observed_generation: wire.status.observed_generation,
            conditions: wire.status.conditions.iter().flatten().cloned().collect(),
        }
    }
}

fn raw(texts: &ResourceTexts) -> RawAmounts {
    texts.iter().map(|(key, text)| (key.clone(), text.0.clone())).collect()
}
