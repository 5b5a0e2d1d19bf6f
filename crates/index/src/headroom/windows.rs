//! Open windows.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use sluice_api::names;
use sluice_engine::Uid;
use sluice_engine::headroom::Amounts;

use super::store::{Indexed, Record, Store};
use super::texts::read_amounts;
use crate::wire::{WindowQuotaWire, WindowWire};

/// So many keys of a planned raise count; the CRD allows no more.
const MAX_KEYS: usize = super::vmmrqs::MAX_KEYS;

/// What is kept of a `MigrationWindow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The process that opened it.
    pub holder: Box<str>,
    /// Unique to this opening.
    pub nonce: Box<str>,
    /// Username of KubeVirt's controller.
    pub creator: Box<str>,
    /// The first second, since the epoch, in which it holds nobody back; 0 if it cannot be read, as the API server
    /// cannot compare with it either.
    pub until: i64,
    /// Name of the migration.
    pub migration: Box<str>,
    /// Uid of the migration.
    pub migration_uid: Uid,
    /// Name of the virtual machine.
    pub machine: Box<str>,
    /// The quotas that are going to be raised.
    pub quotas: Box<[PlannedQuota]>,
}

/// A quota that is going to be raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedQuota {
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Uid,
    /// The planned `status.hard` of the raised keys.
    pub raise: Amounts,
}

/// A `MigrationWindow`.
pub type WindowRecord = Record<Window>;

/// All windows: one per namespace at most.
#[derive(Debug, Default)]
pub struct Windows {
    store: Store<Window>,
}

impl Windows {
    /// The window of a namespace.
    #[must_use]
    pub fn get(&self, namespace: &str) -> Option<&Arc<WindowRecord>> {
        self.store.get(namespace, names::WINDOW_NAME)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<WindowRecord>> {
        self.store.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Window {
    /// What is planned for the quota with this uid.
    pub(super) fn planned(&self, quota: &Uid) -> Option<&Amounts> {
        self.quotas.iter().find(|planned| planned.uid == *quota).map(|planned| &planned.raise)
    }
}

impl Indexed for Windows {
    type Wire = WindowWire;
    type Body = Window;

    fn store_mut(&mut self) -> &mut Store<Window> {
        &mut self.store
    }
    fn meta(wire: &WindowWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &WindowWire) -> Window {
        let spec = &wire.spec;
        Window {
            holder: spec.holder.as_str().into(),
            nonce: spec.nonce.as_str().into(),
            creator: spec.creator.as_str().into(),
            until: spec.until.parse().map_or(0, Timestamp::as_second),
            migration: spec.migration.name.as_str().into(),
            migration_uid: Uid::parse(&spec.migration.uid),
            machine: spec.migration.vmi.as_str().into(),
            quotas: spec.quotas.iter().flatten().map(planned).collect(),
        }
    }
    fn is_kept(meta: &ObjectMeta) -> bool {
        meta.name.as_deref() == Some(names::WINDOW_NAME)
    }
}

fn planned(wire: &WindowQuotaWire) -> PlannedQuota {
    let (raise, _) = read_amounts(&wire.raise, MAX_KEYS);
    PlannedQuota { name: wire.name.as_str().into(), uid: Uid::parse(&wire.uid), raise }
}
