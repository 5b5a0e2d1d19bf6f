//! All ResourceQuotas, and which of them are raised or overdrawn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::native::{Native, NativeRecord};
use super::store::{Indexed, Key, Store};
use crate::wire::NativeQuotaWire;

/// All ResourceQuotas.
#[derive(Debug, Default)]
pub struct NativeQuotas {
    store: Store<Native>,
    raised: BTreeSet<Key>,
    /// By namespace, how many quotas use more than they want to.
    overdrawn: BTreeMap<Arc<str>, usize>,
}

impl NativeQuotas {
    /// One by its name.
    #[must_use]
    pub fn record(&self, namespace: &str, name: &str) -> Option<&Arc<NativeRecord>> {
        self.store.get(namespace, name)
    }

    /// Those of a namespace, by name.
    #[must_use]
    pub fn records_in(&self, namespace: &str) -> &[Arc<NativeRecord>] {
        self.store.in_namespace(namespace)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<NativeRecord>> {
        self.store.iter()
    }

    /// Those of which more is enforced than wanted, by namespace and name.
    pub fn raised(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.raised.iter()
    }

    /// Namespaces in which a quota's usage is above `spec.hard`.
    pub fn overdrawn(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.overdrawn.keys()
    }
}

impl Indexed for NativeQuotas {
    type Wire = NativeQuotaWire;
    type Body = Native;

    fn store_mut(&mut self) -> &mut Store<Native> {
        &mut self.store
    }
    fn meta(wire: &NativeQuotaWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &NativeQuotaWire) -> Native {
        Native::of(wire)
    }
    fn link(&mut self, record: &Arc<NativeRecord>) {
        let quota = record.native();
        if quota.is_raised() {
            self.raised.insert(record.key());
        }
        if !quota.overdraft().is_empty() {
            *self.overdrawn.entry(Arc::clone(&record.namespace)).or_insert(0) += 1;
        }
    }
    fn unlink(&mut self, record: &Arc<NativeRecord>) {
        let quota = record.native();
        if quota.is_raised() {
            self.raised.remove(&record.key());
        }
        if !quota.overdraft().is_empty()
            && let Some(count) = self.overdrawn.get_mut(&record.namespace)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.overdrawn.remove(&record.namespace);
            }
        }
    }
}
