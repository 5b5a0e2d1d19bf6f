//! ResourceQuotas, and which of them are raised.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use sluice_engine::headroom::NativeQuota;
use sluice_engine::scope::{Operator, Scope, ScopeRequirement};
use sluice_engine::{Amount, Resource, Scopes, Uid};

use crate::amounts::{Column, RawAmounts, Texts};
use crate::labels::{Labels, opted_out};
use crate::quantity::{ResourceTexts, resource_list};
use crate::quota_spec::QuotaSpecWire;
use crate::store::{Indexed, Key, Record, Store};

/// A ResourceQuota with its amounts as they are in the API.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ResourceQuota)]
pub struct ResourceQuotaWire {
    /// Name, namespace, uid, version, times, labels, ownerReferences and the annotations that matter here.
    #[serde(deserialize_with = "crate::meta::owned")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: QuotaSpecWire,
    /// What is enforced and used.
    #[serde(default)]
    pub status: ResourceQuotaStatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct ResourceQuotaStatusWire {
    /// Limits that are enforced.
    #[serde(default, deserialize_with = "resource_list")]
    pub hard: ResourceTexts,
    #[serde(default, deserialize_with = "resource_list")]
    pub used: ResourceTexts,
}

/// What is kept of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuotaState {
    texts: Texts,
    pub labels: Labels,
    scopes: Scopes,
    /// An annotation of the quota itself excludes it from head-room.
    pub opted_out: bool,
    /// The controller that owns it.
    pub owner: Option<Box<Owner>>,
    /// When its specification was last written, in seconds since the epoch.
    pub spec_since: i64,
}

/// The controller that owns an object, as its ownerReferences say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
    /// Whether a deletion of it in the foreground waits for the object.
    pub blocks: bool,
}

impl Owner {
    fn of(meta: &ObjectMeta) -> Option<Box<Self>> {
        let mut references = meta.owner_references.iter().flatten();
        let owner = references.find(|reference| reference.controller == Some(true))?;
        Some(Box::new(Self {
            api_version: owner.api_version.as_str().into(),
            kind: owner.kind.as_str().into(),
            name: owner.name.as_str().into(),
            uid: Uid::parse(&owner.uid),
            blocks: owner.block_owner_deletion == Some(true),
        }))
    }
}

pub type ResourceQuotaRecord = Record<ResourceQuotaState>;

/// The three maps of a quota exactly as the API server sent them. An absent map is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawQuota {
    pub spec_hard: RawAmounts,
    pub status_hard: RawAmounts,
    /// `status.used`.
    pub used: RawAmounts,
}

impl ResourceQuotaState {
    pub(super) fn of(meta: &ObjectMeta, spec: &QuotaSpecWire, status: &ResourceQuotaStatusWire) -> Self {
        Self {
            texts: Texts::pack([&spec.hard, &status.hard, &status.used]),
            labels: Labels::of(meta),
            scopes: scopes(spec),
            opted_out: opted_out(meta),
            owner: Owner::of(meta),
            spec_since: spec_since(meta),
        }
    }

    /// Which objects it governs.
    #[must_use]
    pub const fn scopes(&self) -> &Scopes {
        &self.scopes
    }
}

impl ResourceQuotaRecord {
    /// Reads a quota, from a list of one's own for example.
    #[must_use]
    pub fn read(wire: &ResourceQuotaWire) -> Self {
        Self::new(&wire.metadata, ResourceQuotas::body(wire))
    }

    /// The quota as decisions take it; only its own annotation opts it out.
    #[must_use]
    pub fn native(&self) -> NativeQuota {
        let mut unreadable = Vec::new();
        let texts = &self.body.texts;
        let spec_hard = texts.amounts(Column::SpecHard, &mut unreadable);
        let status_hard = texts.amounts(Column::StatusHard, &mut unreadable);
        let used = texts.amounts(Column::Used, &mut unreadable);
        unreadable.sort_unstable();
        unreadable.dedup();
        NativeQuota {
            name: Arc::clone(&self.name),
            uid: self.uid.clone(),
            scopes: self.body.scopes.clone(),
            spec_hard,
            status_hard,
            used,
            unreadable,
            opted_out: self.body.opted_out,
            spec_since: self.body.spec_since,
        }
    }

    /// The texts that a patch can test for.
    #[must_use]
    pub fn raw(&self) -> RawQuota {
        let texts = &self.body.texts;
        RawQuota {
            spec_hard: texts.raw(Column::SpecHard),
            status_hard: texts.raw(Column::StatusHard),
            used: texts.raw(Column::Used),
        }
    }

    /// By resource, what is used above `spec.hard`, or will be when a raise is taken up: of a marked quota what is enforced
    /// counts as used.
    pub(crate) fn overdraft(&self) -> BTreeMap<Resource, Amount> {
        let mut quota = self.native();
        if quota.mark().is_some() {
            for (key, enforced) in &quota.status_hard {
                let used = quota.used.entry(Arc::clone(key)).or_insert(*enforced);
                *used = (*used).max(*enforced);
            }
        }
        quota.overdraft()
    }

    /// How many bytes the record takes, without the allocator's share.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.body.texts.bytes() + self.body.labels.bytes()
    }
}

/// Scopes that are not understood match no pod, as the scopes of other kinds.
fn scopes(spec: &QuotaSpecWire) -> Scopes {
    let never = || ScopeRequirement::exists(Scope::VolumeAttributesClass);
    let listed = spec.scopes.iter().flatten();
    let listed = listed.map(|name| Scope::from_name(name).map_or_else(never, ScopeRequirement::exists));
    let selected =
        spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let selected = selected.map(|text| {
        match (Scope::from_name(&text.scope_name), Operator::from_name(&text.operator)) {
            (Some(scope), Some(operator)) => {
                ScopeRequirement::new(scope, operator, text.values.iter().flatten().map(String::as_str))
            }
            _ => never(),
        }
    });
    Scopes::new(listed.chain(selected))
}

#[derive(Debug, Default)]
pub struct ResourceQuotas {
    store: Store<ResourceQuotaState>,
    /// With a mark, or above their spec without one.
    raised: BTreeSet<Key>,
    /// Of which more is used than `spec.hard`, or may be in a moment.
    above: BTreeSet<Key>,
}

impl ResourceQuotas {
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

    pub fn raised_in(&self, namespace: &Arc<str>) -> impl Iterator<Item = &Key> {
        let first = Key { namespace: Arc::clone(namespace), name: "".into() };
        let end = Arc::clone(namespace);
        self.raised.range(first..).take_while(move |key| key.namespace == end)
    }

    /// Those of which more is used than `spec.hard`, and those that are marked, by namespace and name.
    pub fn above(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.above.iter()
    }
}

impl Indexed for ResourceQuotas {
    type Wire = ResourceQuotaWire;
    type Body = ResourceQuotaState;

    fn store_mut(&mut self) -> &mut Store<ResourceQuotaState> {
        &mut self.store
    }
    fn meta(wire: &ResourceQuotaWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &ResourceQuotaWire) -> ResourceQuotaState {
        ResourceQuotaState::of(&wire.metadata, &wire.spec, &wire.status)
    }
    fn link(&mut self, record: &Arc<ResourceQuotaRecord>) {
        let quota = record.native();
        if quota.mark().is_some() || quota.is_raised() {
            self.raised.insert(record.key());
        }
        if quota.mark().is_some() || !quota.overdraft().is_empty() {
            self.above.insert(record.key());
        }
    }
    fn unlink(&mut self, record: &Arc<ResourceQuotaRecord>) {
        self.raised.remove(&record.key());
        self.above.remove(&record.key());
    }
}

/// By the entries of `managedFields`, which the API server writes; without any, since its creation. Who writes the object
/// without changing its specification may count as its writer too.
fn spec_since(meta: &ObjectMeta) -> i64 {
    let entries = meta.managed_fields.iter().flatten();
    let of_spec = entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    let written = of_spec.filter_map(|entry| Some(entry.time.as_ref()?.0.as_second())).max();
    let created = meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    written.map_or(created, |written| written.max(created))
}
