//! Waiting pods that fit or do not fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::near::NearPods;
use super::quota_set::QuotaSet;
use super::wait_order::{Age, Deadline, PodId, QuotaId, Rank, WaitKey};
use super::waiting::WaitReason;
use crate::charge::Charge;
use crate::ledger::Excess;

/// What one quota has against a class of pods that are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The quota that has no room.
    pub quota: QuotaId,
    /// What it has too little of.
    pub excess: Vec<Excess>,
    /// There would be room, but it is kept for a pod that has waited longer.
    pub behind: Option<PodId>,
}

impl Reason {
    /// As one of few kinds.
    #[must_use]
    pub fn kind(&self) -> WaitReason {
        if self.behind.is_some() {
            WaitReason::RoomKept
        } else if self.excess.iter().any(Excess::never_fits) {
            WaitReason::NeverFits
        } else {
            WaitReason::Full
        }
    }

    /// Whether a person would be told the same: the amounts in use change all the time and do not matter.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.quota == other.quota
            && self.behind.is_some() == other.behind.is_some()
            && self.excess.len() == other.excess.len()
            && self
                .excess
                .iter()
                .zip(&other.excess)
                .all(|(a, b)| a.resource == b.resource && a.never_fits() == b.never_fits())
    }
}

/// Waiting pods that take the same from the same share of the same quotas.
///
/// The pods of a class fit or do not fit together, so a decision looks at the first of them only: its cost depends on how
/// many *different* charges wait, not on how many pods.
#[derive(Debug)]
pub struct EquivalenceClass {
    pub(super) charge: Arc<Charge>,
    pub(super) quotas: Arc<QuotaSet>,
    pods: BTreeMap<WaitKey, (PodId, u64)>,
    /// Of all pods, if there are several.
    ages: BTreeSet<Age>,
    near: NearPods,
    /// When room was kept for it in vain last; it is taken to have waited since then at most.
    had_turn_ms: u64,
    /// How often that was, since one of its pods went when room was kept for it.
    pub(super) in_vain: u32,
    /// What its quotas had against it when it was looked at last; empty before.
    pub(super) reasons: Vec<Reason>,
    /// Whether the charge fits an empty quota. If not, the class neither is looked at when room becomes free
    /// nor does it reserve any.
    pub(super) fits_when_empty: bool,
}

/// The pods that stand for a class in the lists of its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Front {
    /// The first in the order.
    pub(super) head: Rank,
    /// The one that has waited longest.
    pub(super) eldest: Age,
}

impl EquivalenceClass {
    pub(super) fn new(charge: Arc<Charge>, quotas: Arc<QuotaSet>, fits_when_empty: bool) -> Self {
        let (pods, ages, near) = (BTreeMap::new(), BTreeSet::new(), NearPods::default());
        let (had_turn_ms, in_vain) = (0, 0);
        Self { charge, quotas, pods, ages, near, had_turn_ms, in_vain, reasons: Vec::new(), fits_when_empty }
    }

    /// What each pod of the class takes.
    #[must_use]
    pub fn charge(&self) -> &Arc<Charge> {
        &self.charge
    }

    /// The quotas the pods take it from.
    #[must_use]
    pub fn quotas(&self) -> &Arc<QuotaSet> {
        &self.quotas
    }

    /// The pods in the order of [`WaitKey`].
    pub fn pods(&self) -> impl ExactSizeIterator<Item = PodId> {
        self.pods.values().map(|(pod, _)| *pod)
    }

    /// Why they are held, once it was looked at: the first of its quotas, in the order of ids, that has no room.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.reasons.first()
    }

    /// The pods in the order of [`WaitKey`], each with its place: by the deadline that is near first, then by its key.
    pub fn ranked(&self) -> impl Iterator<Item = (Deadline, &WaitKey, PodId)> {
        self.pods.iter().map(|(key, (pod, _))| (self.near.of(key).unwrap_or(Deadline::NONE), key, *pod))
    }

    /// Whether its charge fits its quotas when they are empty.
    #[must_use]
    pub const fn could_fit(&self) -> bool {
        self.fits_when_empty
    }

    /// Whether people were told these reasons when it was looked at last.
    pub(super) fn was_told(&self, reasons: &[Reason]) -> bool {
        self.reasons.len() == reasons.len()
            && self.reasons.iter().zip(reasons).all(|(old, new)| old.says_the_same(new))
    }

    /// The same as one of few kinds.
    pub(super) fn wait_reason(&self) -> WaitReason {
        let mut kinds = self.reasons.iter().map(Reason::kind);
        let first = kinds.next().unwrap_or(WaitReason::NotLookedAt);
        // A quota that can never take it is what its owner has to hear of, wherever that quota stands.
        if kinds.any(|kind| kind == WaitReason::NeverFits) { WaitReason::NeverFits } else { first }
    }

    pub(super) fn add(&mut self, key: WaitKey, pod: PodId, since_ms: u64) {
        self.pods.insert(key.clone(), (pod, since_ms));
        if self.ages.is_empty() && self.pods.len() > 1 {
            self.ages = self.pods.iter().map(|(key, (_, since_ms))| (*since_ms, key.clone())).collect();
        } else if !self.ages.is_empty() {
            self.ages.insert((since_ms, key));
        }
    }

    pub(super) fn take(&mut self, key: &WaitKey) -> Option<PodId> {
        let (pod, since_ms) = self.pods.remove(key)?;
        self.ages.remove(&(since_ms, key.clone()));
        if self.pods.len() == 1 {
            self.ages.clear();
        }
        self.near.set(key, None);
        Some(pod)
    }

    /// Returns whether the deadline of this pod is news.
    pub(super) fn hasten(&mut self, key: &WaitKey, deadline: Option<Deadline>) -> bool {
        self.pods.contains_key(key) && self.near.set(key, deadline)
    }

    /// None if the class has no pods.
    pub(super) fn front(&self) -> Option<Front> {
        Some(Front { head: self.head()?, eldest: self.eldest()? })
    }

    pub(super) fn head(&self) -> Option<Rank> {
        let first = || self.pods.first_key_value().map(|(key, _)| (Deadline::NONE, key.clone()));
        self.near.first().cloned().or_else(first)
    }

    /// Whether its first pod goes before those of the other class, which is of the same share, because of a deadline.
    pub(super) fn hurries_before(&self, other: &Self) -> bool {
        let is_before = |near: &Rank| other.near.first().is_none_or(|other| near < other);
        self.quotas.share() == other.quotas.share() && self.near.first().is_some_and(is_before)
    }

    /// Since when this pod has waited, if a deadline of it is near.
    pub(super) fn near_since_ms(&self, key: &WaitKey) -> Option<u64> {
        let (_, since_ms) = self.pods.get(key).filter(|_| self.near.has(key))?;
        Some(*since_ms)
    }

    /// The pod that goes first if room is kept for the class.
    pub(super) fn claimant(&self) -> Option<WaitKey> {
        let near = self.near.first().map(|(_, key)| key.clone());
        near.or_else(|| self.eldest().map(|(_, key)| key))
    }

    pub(super) fn eldest(&self) -> Option<Age> {
        let only = || self.pods.first_key_value().map(|(key, (_, since_ms))| (*since_ms, key.clone()));
        let (since_ms, key) = self.ages.first().cloned().or_else(only)?;
        Some((since_ms.max(self.had_turn_ms), key))
    }

    /// Room was kept for it in vain.
    pub(super) fn had_turn(&mut self, now_ms: u64) {
        self.had_turn_ms = now_ms;
        self.in_vain = self.in_vain.saturating_add(1);
    }

    pub(super) fn pod(&self, key: &WaitKey) -> Option<PodId> {
        self.pods.get(key).map(|(pod, _)| *pod)
    }
}
