//! `ApplicationAwareResourceQuota`s: what they want and what their status says.

mod recorded;
mod shared_specs;

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use sluice_api::ApplicationAwareResourceQuota;
use sluice_engine::quota_spec::compile;
use sluice_engine::status::enforced;
use sluice_engine::{CompiledQuota, QuotaId, Uid};

pub use recorded::{Quantities, QuotaConditionWire, QuotaStatusWire, Recorded, Told};

use self::shared_specs::SharedSpecs;
use super::namespace::{NamespaceId, Namespaces};
use crate::quota_spec::QuotaSpecWire;
use crate::store::ListNumber;
use crate::version::Version;

/// A quota with its texts as the user wrote them.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ApplicationAwareResourceQuota)]
pub struct QuotaWire {
    /// Name, namespace, uid and version, and who wrote which subresource when; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::managed")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: QuotaSpecWire,
    /// What was last recorded.
    #[serde(default)]
    pub status: Option<QuotaStatusWire>,
}

/// A quota.
#[derive(Debug)]
pub struct QuotaRecord {
    /// Its name.
    pub name: Arc<str>,
    /// Its namespace.
    pub namespace: NamespaceId,
    /// Its identity.
    pub uid: Uid,
    /// The version that the rest was read from, or that our last write made.
    pub version: Version,
    /// `metadata.creationTimestamp`, in seconds since the epoch.
    pub created: i64,
    /// What is wanted, ready for use; `Err` names the fields that are wrong.
    pub compiled: Compiled,
    /// What the status says.
    pub recorded: Recorded,
    list: ListNumber,
}

/// A specification ready for use, or what is wrong with it.
type Compiled = Result<Arc<CompiledQuota>, Arc<str>>;

/// What applying a quota changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// It was not known, or one of the same name with another uid was: that one has to go first.
    Added(QuotaId),
    /// Its limits are different, for the same resources and scopes.
    Limits(QuotaId),
    /// It counts other resources or other pods than before.
    Meaning(QuotaId),
    /// Only its status is different.
    Status(QuotaId),
    /// Nothing that is kept, or the object is older than what is known.
    Same,
}

/// All quotas.
#[derive(Debug, Default)]
pub struct Quotas {
    records: HashMap<QuotaId, QuotaRecord>,
    by_name: HashMap<(NamespaceId, Arc<str>), QuotaId>,
    shared: SharedSpecs,
    next: u32,
    list: ListNumber,
}

impl Quotas {
    /// A quota by its handle.
    #[must_use]
    pub fn get(&self, id: QuotaId) -> Option<&QuotaRecord> {
        self.records.get(&id)
    }

    /// A quota by its name.
    #[must_use]
    pub fn find(&self, namespace: NamespaceId, name: &str) -> Option<QuotaId> {
        self.by_name.get(&(namespace, Arc::from(name))).copied()
    }

    /// All quotas with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (QuotaId, &QuotaRecord)> {
        self.records.iter().map(|(id, record)| (*id, record))
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

    /// A list of quotas begins.
    pub fn begin_list(&mut self) {
        self.list.begin();
    }

    /// The list is complete. Returns the quotas that were not in it; they are still to be removed.
    #[must_use]
    pub fn end_list(&self) -> Vec<QuotaId> {
        self.iter().filter(|(_, record)| record.list != self.list).map(|(id, _)| id).collect()
    }

    /// The quota that an object would replace: same name, another uid.
    #[must_use]
    pub fn replaced_by(&self, wire: &QuotaWire, namespaces: &Namespaces) -> Option<QuotaId> {
        let namespace = namespaces.id(wire.metadata.namespace.as_deref()?)?;
        let id = self.find(namespace, wire.metadata.name.as_deref()?)?;
        let known = self.get(id)?;
        let version = Version::parse(wire.metadata.resource_version.as_deref());
        let same = known.uid == Uid::parse(wire.metadata.uid.as_deref().unwrap_or_default());
        (!same && !version.is_older_than(known.version)).then_some(id)
    }

    /// A quota was seen. [`Self::replaced_by`] has to be asked and obeyed before.
    pub fn upsert(&mut self, wire: &QuotaWire, namespaces: &mut Namespaces) -> QuotaChange {
        let name = wire.metadata.name.as_deref().unwrap_or_default();
        let namespace = namespaces.intern(wire.metadata.namespace.as_deref().unwrap_or_default());
        let version = Version::parse(wire.metadata.resource_version.as_deref());
        let fresh = compiled(&wire.spec).map(|spec| self.shared.spec(spec));
        let shared = &mut self.shared;
        let recorded = wire.status.as_ref().map(|status| Recorded::read(status, shared)).unwrap_or_default();
        let list = self.list;
        let Some(id) = self.find(namespace, name) else {
            return QuotaChange::Added(self.insert(wire, namespace, namespaces, fresh, recorded));
        };
        let Some(known) = self.records.get_mut(&id) else { return QuotaChange::Same };
        known.list = list;
        if version.is_older_than(known.version) || (version == known.version && version != Version::default())
        {
            return QuotaChange::Same;
        }
        known.version = version;
        let status_changed = known.recorded != recorded;
        known.recorded = recorded;
        if known.compiled == fresh {
            return if status_changed { QuotaChange::Status(id) } else { QuotaChange::Same };
        }
        let same_meaning = match (&known.compiled, &fresh) {
            (Ok(old), Ok(new)) => counts_the_same(old, new),
            _ => false,
        };
        known.compiled = fresh;
        if same_meaning { QuotaChange::Limits(id) } else { QuotaChange::Meaning(id) }
    }

    /// A quota is gone.
    pub fn remove(&mut self, id: QuotaId, namespaces: &mut Namespaces) -> Option<QuotaRecord> {
        let record = self.records.remove(&id)?;
        self.by_name.remove(&(record.namespace, Arc::clone(&record.name)));
        if let Some(namespace) = namespaces.get_mut(record.namespace) {
            namespace.quotas.retain(|other| *other != id);
        }
        namespaces.forget_if_empty(record.namespace);
        Some(record)
    }

    /// The quota gets another handle. The old one stands for what it was before.
    pub fn renew(&mut self, id: QuotaId, namespaces: &mut Namespaces) -> Option<QuotaId> {
        let record = self.records.remove(&id)?;
        if let Some(namespace) = namespaces.get_mut(record.namespace) {
            namespace.quotas.retain(|other| *other != id);
        }
        Some(self.enter(record, namespaces))
    }

    fn insert(
        &mut self,
        wire: &QuotaWire,
        namespace: NamespaceId,
        namespaces: &mut Namespaces,
        compiled: Compiled,
        recorded: Recorded,
    ) -> QuotaId {
        let record = QuotaRecord {
            name: wire.metadata.name.as_deref().unwrap_or_default().into(),
            namespace,
            uid: Uid::parse(wire.metadata.uid.as_deref().unwrap_or_default()),
            version: Version::parse(wire.metadata.resource_version.as_deref()),
            created: wire.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            compiled,
            recorded,
            list: self.list,
        };
        self.enter(record, namespaces)
    }

    fn enter(&mut self, record: QuotaRecord, namespaces: &mut Namespaces) -> QuotaId {
        let id = QuotaId(self.next);
        self.next = self.next.wrapping_add(1);
        self.by_name.insert((record.namespace, Arc::clone(&record.name)), id);
        if let Some(namespace) = namespaces.get_mut(record.namespace) {
            namespace.quotas.push(id);
            namespace.quotas.sort_unstable();
        }
        self.records.insert(id, record);
        id
    }
}

fn compiled(spec: &QuotaSpecWire) -> Result<CompiledQuota, Arc<str>> {
    compile(&spec.raw()?).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.join("; ").into()
    })
}

/// Whether two specifications count the same resources of the same pods, so that sums stay right.
fn counts_the_same(old: &CompiledQuota, new: &CompiledQuota) -> bool {
    old.scopes == new.scopes
        && enforced(old).map(|(resource, _)| resource).eq(enforced(new).map(|(resource, _)| resource))
}
