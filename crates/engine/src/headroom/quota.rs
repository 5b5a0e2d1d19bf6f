//! A native ResourceQuota as far as head-room needs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Amounts;
use crate::charge::Amount;
use crate::quantity::Quantity;
use crate::resource::{KeyKind, Resource, is_native, key_kind};
use crate::scope::{ScopeFacts, Scopes};
use crate::uid::Uid;

/// A ResourceQuota.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NativeQuota {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
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
        }
    }

    /// Whether quota admission enforces more than what is wanted: a key of `status.hard` is above `spec.hard`, or
    /// is not in it at all.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.status_hard.iter().any(|(key, enforced)| match self.spec_hard.get(key) {
            Some(wanted) => enforced > wanted,
            None => !self.unreadable.contains(key),
        })
    }

    /// Whether quota admission asks this quota about a pod with these facts: a key of `status.hard` is one that
    /// pods consume, and all scopes match. So a quota without status governs nothing.
    #[must_use]
    pub fn governs(&self, facts: &ScopeFacts) -> bool {
        self.status_hard.keys().chain(&self.unreadable).any(|key| consumed(key)) && self.scopes.matches(facts)
    }

    /// What is used above `spec.hard`; see [`overdraft`].
    #[must_use]
    pub fn overdraft(&self) -> BTreeMap<Resource, Amount> {
        overdraft(&self.spec_hard, &self.used)
    }
}

/// Whether the pod evaluator of quota admission answers for `key`. Unlike for application-aware quotas, a name
/// under `requests.` with a foreign domain is one of its own, whatever else it may mean elsewhere.
#[must_use]
pub fn consumed(key: &str) -> bool {
    key_kind(key) == KeyKind::Pod || (key.starts_with("requests.") && !is_native(key))
}

/// By resource, how much more is used than `spec_hard` says: always more than 0. Names for the same number count as
/// one, and the most exceeded one decides; keys that pods cannot take are left out.
#[must_use]
pub fn overdraft(spec_hard: &Amounts, used: &Amounts) -> BTreeMap<Resource, Amount> {
    let mut over = BTreeMap::new();
    for (key, hard) in spec_hard.iter().filter(|(key, _)| consumed(key)) {
        let used = used.get(key).copied().unwrap_or(Quantity::ZERO);
        let above = Amount::from(used).saturating_sub(Amount::from(*hard));
        if above > Amount::ZERO {
            let most = over.entry(Resource::from_quota_key(key)).or_insert(above);
            *most = above.max(*most);
        }
    }
    over
}

/// What to write to end a raise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// `metadata.name` of the quota.
    pub quota: Arc<str>,
    /// `metadata.uid` of the quota.
    pub uid: Uid,
    /// The whole new `status.hard`, which is `spec.hard`, amounts in the format they have there.
    pub hard: Amounts,
}

/// How to bring `status.hard` back to `spec.hard`; `None` if nothing is above it.
#[must_use]
pub fn restore(quota: &NativeQuota) -> Option<Restore> {
    quota.is_raised().then(|| Restore {
        quota: Arc::clone(&quota.name),
        uid: quota.uid.clone(),
        hard: quota.spec_hard.clone(),
    })
}
