//! A native ResourceQuota as far as head-room needs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Amounts;
use crate::charge::Amount;
use crate::quantity::{NANOS_PER_UNIT, Quantity};
use crate::resource::{KeyKind, Resource, is_native, key_kind};
use crate::scope::{ScopeFacts, Scopes};
use crate::uid::Uid;

/// The key that marks a raised quota, in `status.hard` and `status.used`: the number of probes of head-room, an API kind of
/// which no object is ever stored. Its amount is the end of the lock in milliseconds since the epoch, by the API server's
/// clock. No pod consumes it, and kube-controller-manager drops it when it puts `status.hard` back to `spec.hard`.
pub const MARK: &str = "count/headroomprobes.quota.sluice.dev";

/// The key of `status.used` that counts nudges. No quota limits it, quota admission looks only at keys of `status.hard`, and
/// kube-controller-manager drops it at its next sync.
pub const NUDGE_KEY: &str = "count/headroomnudges.quota.sluice.dev";

/// A ResourceQuota.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NativeQuota {
    pub name: Arc<str>,
    pub uid: Uid,
    /// `spec.scopes` and `spec.scopeSelector`.
    pub scopes: Scopes,
    /// `spec.hard`: what is wanted. Never written.
    pub spec_hard: Amounts,
    /// `status.hard`: what quota admission enforces.
    pub status_hard: Amounts,
    /// `status.used`.
    pub used: Amounts,
    /// Keys with an amount, in any of the three maps, that is not a quantity this program can hold. They are
    /// missing from that map.
    pub unreadable: Vec<Arc<str>>,
    /// The quota or its namespace must not be raised.
    pub opted_out: bool,
    /// When `spec` was last written, in seconds since the epoch:
    /// pods that are not younger were not let in beside this limit.
    pub spec_since: i64,
}

impl NativeQuota {
    /// A quota without limits, scopes and usage.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, uid: Uid) -> Self {
        Self {
            name: name.into(),
            uid,
            scopes: Scopes::default(),
            spec_hard: Amounts::new(),
            status_hard: Amounts::new(),
            used: Amounts::new(),
            unreadable: Vec::new(),
            opted_out: false,
            spec_since: i64::MIN,
        }
    }

    /// When the lock that this quota is marked with ends, in milliseconds since the epoch by the API server's clock; `None`
    /// without a mark. A limit on the key in `spec.hard` is not a mark.
    #[must_use]
    pub fn mark(&self) -> Option<i64> {
        if self.spec_hard.contains_key(MARK) {
            return None;
        }
        let end = self.status_hard.get(MARK)?.nanos() / NANOS_PER_UNIT;
        Some(i64::try_from(end).unwrap_or(0))
    }

    /// Whether quota admission enforces more of a key than what is wanted.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised_keys().next().is_some()
    }

    fn raised_keys(&self) -> impl Iterator<Item = (&Arc<str>, &Quantity)> {
        let more = |(key, wanted): &(&Arc<str>, &Quantity)| {
            self.status_hard.get(*key).is_some_and(|enforced| enforced > *wanted)
        };
        self.spec_hard.iter().filter(more)
    }

    /// Whether the keys that are raised are all used up to what is enforced; `None` if none is raised.
    #[must_use]
    pub fn is_charged(&self) -> Option<bool> {
        let mut raised = self.raised_keys().peekable();
        raised.peek()?;
        Some(raised.all(|(key, _)| self.used.get(key) == self.status_hard.get(key)))
    }

    /// Keys of `spec.hard` of which another amount is enforced, with the amount that is wanted.
    fn apart(&self) -> impl Iterator<Item = (&Arc<str>, &Quantity)> {
        let differs = |(key, wanted): &(&Arc<str>, &Quantity)| {
            self.status_hard.get(*key).is_some_and(|enforced| enforced != *wanted)
        };
        self.spec_hard.iter().filter(differs)
    }

    /// Whether quota admission asks this quota about a pod with these facts: a key of `status.hard` is one that
    /// pods consume, and all scopes match. So a quota without status governs nothing.
    #[must_use]
    pub fn governs(&self, facts: &ScopeFacts) -> bool {
        self.status_hard.keys().chain(&self.unreadable).any(|key| consumed(key)) && self.scopes.matches(facts)
    }

    /// By resource, how much more is used than `spec.hard` says: always more than 0. Names for the same number count as one,
    /// and the most exceeded one decides; keys that pods cannot take are left out.
    #[must_use]
    pub fn overdraft(&self) -> BTreeMap<Resource, Amount> {
        let mut over = BTreeMap::new();
        for (key, hard) in self.spec_hard.iter().filter(|(key, _)| consumed(key)) {
            let used = self.used.get(key).copied().unwrap_or(Quantity::ZERO);
            let above = Amount::from(used).saturating_sub(Amount::from(*hard));
            if above > Amount::ZERO {
                let most = over.entry(Resource::from_quota_key(key)).or_insert(above);
                *most = above.max(*most);
            }
        }
        over
    }
}

/// Whether the pod evaluator of quota admission answers for `key`. Unlike for application-aware quotas, a name
/// under `requests.` with a foreign domain is one of its own, whatever else it may mean elsewhere.
#[must_use]
pub fn consumed(key: &str) -> bool {
    key_kind(key) == KeyKind::Pod || (key.starts_with("requests.") && !is_native(key))
}

/// What to write to end a raise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// Keys of `status.hard` to set to what `spec.hard` says, with that.
    pub keys: Amounts,
    /// Whether there is a mark to take away.
    pub unmark: bool,
}

/// How to end a raise; `None` if there is none. Of a marked quota every key that is set apart from `spec.hard` is put back,
/// of another one those that are above it; nothing else is touched.
#[must_use]
pub fn restore(quota: &NativeQuota) -> Option<Restore> {
    let unmark = quota.mark().is_some();
    let owned = |(key, wanted): (&Arc<str>, &Quantity)| (Arc::clone(key), *wanted);
    let keys: Amounts =
        if unmark { quota.apart().map(owned).collect() } else { quota.raised_keys().map(owned).collect() };
    (unmark || !keys.is_empty()).then_some(Restore { keys, unmark })
}
