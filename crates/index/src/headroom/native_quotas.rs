//! All ResourceQuotas, and which of them are raised.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::native::{Native, ResourceQuotaRecord};
use crate::store::{Indexed, Key, Store};
use crate::wire::NativeQuotaWire;

/// All ResourceQuotas.
#[derive(Debug, Default)]
pub struct NativeQuotas {
    store: Store<Native>,
    /// With a mark, or above their spec without one.
    raised: BTreeSet<Key>,
    /// Quotas that were raised for a target, and of which more than `spec.hard` was enforced or used ever since.
    lent: BTreeSet<Key>,
}

impl NativeQuotas {
    /// One by its name.
    #[must_use]
    pub fn record(&self, namespace: &str, name: &str) -> Option<&Arc<ResourceQuotaRecord>> {
        self.store.get(namespace, name)
    }

    /// Those of a namespace, by name.
    #[must_use]
    pub fn records_in(&self, namespace: &str) -> &[Arc<ResourceQuotaRecord>] {
        self.store.in_namespace(namespace)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceQuotaRecord>> {
        self.store.iter()
    }

    /// Those that are marked, or of which more is enforced than wanted, by namespace and name.
    pub fn raised(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.raised.iter()
    }

    /// As [`Self::raised`], of one namespace.
    pub fn raised_in(&self, namespace: &Arc<str>) -> impl Iterator<Item = &Key> {
        let first = Key { namespace: Arc::clone(namespace), name: "".into() };
        let end = Arc::clone(namespace);
        self.raised.range(first..).take_while(move |key| key.namespace == end)
    }

    /// Those that were raised for a target and have used more than `spec.hard` ever since: what a quota uses above a limit
    /// that was lowered is not lent. Raises before the first list are not known.
    pub fn lent(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.lent.iter()
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
    fn link(&mut self, record: &Arc<ResourceQuotaRecord>) {
        let quota = record.native();
        if quota.mark().is_some() || quota.is_raised() {
            self.raised.insert(record.key());
        }
        if quota.mark().is_some() {
            self.lent.insert(record.key());
        } else if record.overdraft().is_empty() {
            self.lent.remove(&record.key());
        }
    }
    fn unlink(&mut self, record: &Arc<ResourceQuotaRecord>) {
        self.raised.remove(&record.key());
    }
    fn forget(&mut self, key: &Key) {
        self.lent.remove(key);
    }
}
