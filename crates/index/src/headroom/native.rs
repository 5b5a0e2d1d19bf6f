//! A ResourceQuota as a compact record.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::headroom::NativeQuota;
use sluice_engine::scope::{Operator, Scope, ScopeRequirement};
use sluice_engine::{Amount, Resource, Scopes};

use super::labels::{Labels, opted_out};
use super::texts::{Column, RawAmounts, Texts};
use crate::store::Record;
use crate::wire::{NativeQuotaWire, QuotaSpecWire};

/// What is kept of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Native {
    texts: Texts,
    /// Its labels.
    pub labels: Labels,
    scopes: Scopes,
    /// An annotation of the quota itself excludes it from head-room.
    pub opted_out: bool,
}

/// A ResourceQuota.
pub type ResourceQuotaRecord = Record<Native>;

/// The three maps of a quota exactly as the API server sent them. An absent map is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawQuota {
    /// `spec.hard`.
    pub spec_hard: RawAmounts,
    /// `status.hard`.
    pub status_hard: RawAmounts,
    /// `status.used`.
    pub used: RawAmounts,
}

impl Native {
    pub(super) fn of(wire: &NativeQuotaWire) -> Self {
        Self {
            texts: Texts::pack([&wire.spec.hard, &wire.status.hard, &wire.status.used]),
            labels: Labels::of(&wire.metadata),
            scopes: scopes(&wire.spec),
            opted_out: opted_out(&wire.metadata),
        }
    }
}

impl ResourceQuotaRecord {
    /// Reads a quota, from a list of one's own for example.
    #[must_use]
    pub fn read(wire: &NativeQuotaWire) -> Self {
        Self::new(&wire.metadata, Native::of(wire))
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
    pub(super) fn overdraft(&self) -> BTreeMap<Resource, Amount> {
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
