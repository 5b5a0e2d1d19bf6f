//! All quotas as the gate knows them: those of one namespace and those of the cluster.
//!
//! Selection is kept with the namespaces ([`Namespace::quotas`](crate::Namespace::quotas)), so that finding the quotas of a
//! pod costs the same however many there are.

mod cluster;
mod namespace_selector;
mod record;
mod recorded;
mod shared_specs;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::{QuotaId, Uid};

pub use self::cluster::ClusterChange;
use self::cluster::ClusterQuotas;
pub use self::record::{ChargeObject, ClusterScope, QuotaRecord, QuotaScope};
use self::record::{Compiled, compiled, counts_the_same};
pub use self::recorded::{Printed, Quantities, Recorded, Told, ToldOfMachines};
use self::shared_specs::SharedSpecs;
use crate::kinds::arq::ArqWire;
use crate::kinds::namespace::{NamespaceId, Namespaces};
use crate::list_number::{ListNumber, Source};
use crate::version::Version;

/// What applying a quota changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// The quota was not known, or one of the same name with another uid was: that one has to go first.
    Added(QuotaId),
    /// The limits are different, for the same resources and scopes.
    Limits(QuotaId),
    /// The quota counts other resources or other pods than before.
    Meaning(QuotaId),
    /// Only the status is different.
    Status(QuotaId),
    /// Nothing that is kept, or the object is older than what is known.
    Same,
}

#[derive(Debug, Default)]
pub struct Quotas {
    /// Each in a place of its own: who goes through all handles does not go through all records.
    records: HashMap<QuotaId, Box<QuotaRecord>>,
    /// By namespace, if it has one, and name.
    by_name: HashMap<(Option<NamespaceId>, Arc<str>), QuotaId>,
    cluster: ClusterQuotas,
    shared: SharedSpecs,
    next: u32,
    list: ListNumber,
}

impl Quotas {
    #[must_use]
    pub fn get(&self, id: QuotaId) -> Option<&QuotaRecord> {
        self.records.get(&id).map(|record| &**record)
    }

    #[must_use]
    pub fn find(&self, namespace: NamespaceId, name: &str) -> Option<QuotaId> {
        self.by_name.get(&(Some(namespace), Arc::from(name))).copied()
    }

    /// All quotas with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (QuotaId, &QuotaRecord)> {
        self.records.iter().map(|(id, record)| (*id, &**record))
    }

    /// How many quotas there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// A list of the quotas of all namespaces begins.
    pub fn begin_list(&mut self) {
        self.list.begin();
    }

    /// The list is complete. Returns the quotas that were not in it; they are still to be removed.
    #[must_use]
    pub fn end_list(&self) -> Vec<QuotaId> {
        let is_gone = |record: &QuotaRecord| record.namespace().is_some() && record.list != self.list;
        self.iter().filter(|(_, record)| is_gone(record)).map(|(id, _)| id).collect()
    }

    /// The quota that an object would replace: same name, another uid.
    #[must_use]
    pub fn replaced_by(&self, wire: &ArqWire, namespaces: &Namespaces) -> Option<QuotaId> {
        let namespace = namespaces.id(wire.metadata.namespace.as_deref()?)?;
        self.replaced(self.find(namespace, wire.metadata.name.as_deref()?)?, &wire.metadata)
    }

    fn replaced(&self, id: QuotaId, meta: &ObjectMeta) -> Option<QuotaId> {
        let known = self.get(id)?;
        let version = Version::parse(meta.resource_version.as_deref());
        let same = known.uid == Uid::parse(meta.uid.as_deref().unwrap_or_default());
        (!same && !version.is_older_than(known.version)).then_some(id)
    }

    /// A quota of a namespace was seen. [`Self::replaced_by`] has to be asked and obeyed before.
    pub fn upsert(&mut self, wire: &ArqWire, by: Source, namespaces: &mut Namespaces) -> QuotaChange {
        let name = wire.metadata.name.as_deref().unwrap_or_default();
        let namespace = namespaces.intern(wire.metadata.namespace.as_deref().unwrap_or_default());
        let fresh = compiled(&wire.spec).map(|spec| self.shared.spec(spec));
        let shared = &mut self.shared;
        let recorded = wire.status.as_ref().map(|status| Recorded::read(status, shared)).unwrap_or_default();
        let Some(id) = self.find(namespace, name) else {
            let scope = QuotaScope::Namespace(namespace);
            let record = QuotaRecord::new(&wire.metadata, scope, fresh, self.list);
            return QuotaChange::Added(self.enter(QuotaRecord { recorded, ..record }, namespaces));
        };
        let list = self.list;
        let Some(known) = self.records.get_mut(&id) else { return QuotaChange::Same };
        known.list.see(list, by);
        if !known.is_to_be_read(&wire.metadata) {
            return QuotaChange::Same;
        }
        let status_changed = known.recorded != recorded;
        known.recorded = recorded;
        match known.respecify(id, fresh) {
            QuotaChange::Same if status_changed => QuotaChange::Status(id),
            change => change,
        }
    }

    pub fn remove(&mut self, id: QuotaId, namespaces: &mut Namespaces) -> Option<QuotaRecord> {
        let record = *self.records.remove(&id)?;
        self.move_cluster(id, None);
        self.by_name.remove(&(record.namespace(), Arc::clone(&record.name)));
        for namespace in record.namespaces() {
            if let Some(namespace) = namespaces.get_mut(namespace) {
                namespace.set_quota(id, false);
            }
            namespaces.forget_if_empty(namespace);
        }
        Some(record)
    }

    /// The quota gets another handle. The old one stands for what it was before.
    pub fn renew(&mut self, id: QuotaId, namespaces: &mut Namespaces) -> Option<QuotaId> {
        let record = *self.records.remove(&id)?;
        for namespace in record.namespaces() {
            if let Some(namespace) = namespaces.get_mut(namespace) {
                namespace.set_quota(id, false);
            }
        }
        let new = self.enter(record, namespaces);
        self.move_cluster(id, Some(new));
        Some(new)
    }

    fn enter(&mut self, record: QuotaRecord, namespaces: &mut Namespaces) -> QuotaId {
        let id = QuotaId(self.next);
        self.next = self.next.wrapping_add(1);
        self.by_name.insert((record.namespace(), Arc::clone(&record.name)), id);
        for namespace in record.namespaces() {
            if let Some(namespace) = namespaces.get_mut(namespace) {
                namespace.set_quota(id, true);
            }
        }
        self.records.insert(id, Box::new(record));
        id
    }
}

impl QuotaRecord {
    /// Whether the object is not older than what is known of it; then its version is.
    fn is_to_be_read(&mut self, meta: &ObjectMeta) -> bool {
        let version = Version::parse(meta.resource_version.as_deref());
        if version.is_older_than(self.version) || (version == self.version && version != Version::default()) {
            return false;
        }
        self.version = version;
        true
    }

    /// Takes over a specification.
    fn respecify(&mut self, id: QuotaId, fresh: Compiled) -> QuotaChange {
        if self.compiled == fresh {
            return QuotaChange::Same;
        }
        let same_meaning = counts_the_same(&self.compiled, &fresh);
        self.compiled = fresh;
        if same_meaning { QuotaChange::Limits(id) } else { QuotaChange::Meaning(id) }
    }
}
