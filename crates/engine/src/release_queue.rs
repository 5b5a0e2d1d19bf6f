//! All ledgers and all waiting pods; [`ReleaseQueue::decide`] says which of them to release.

mod account;
mod claims;
mod classes;
mod dominant_share;
mod equivalence_class;
mod exchange;
mod fresh;
mod growth;
mod lanes;
mod let_go;
mod long_queue;
mod near;
mod obstacles;
mod quota_entry;
mod quota_set;
mod reservation;
mod shares;
mod sweep;
mod wait_order;
mod waiting;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

pub use self::equivalence_class::{EquivalenceClass, Reason};
pub use self::exchange::{Exchange, Taken};
use self::quota_entry::{QuotaEntry, Rest};
pub use self::quota_set::{QuotaSet, ShareId};
use self::reservation::Reservation;
pub use self::shares::Shares;
pub use self::wait_order::{ClassId, Deadline, Patience, PodId, QuotaId, WaitKey};
use self::waiting::Census;
pub use self::waiting::WaitReason;
use crate::charge::{Amount, Charge};
use crate::ledger::Ledger;
use crate::resource::Resource;
use crate::timers::Timers;

/// What a decision says about a pod or a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The pod fits; its charge is now [`Claim::Assumed`](crate::ledger::Claim) in each of its quotas and it waits no more.
    Release {
        /// The pod.
        pod: PodId,
        charge: Arc<Charge>,
        /// From which quotas.
        quotas: Arc<QuotaSet>,
    },
    /// The class was looked at and does not fit, for another reason than the last time.
    Held(ClassId),
}

/// The ledgers of all quotas and the queue of waiting pods.
///
/// One value holds everything that a release depends on, so that two namespaces that share a quota cannot
/// both be given its last room.
#[derive(Debug, Default)]
pub struct ReleaseQueue {
    entries: HashMap<QuotaId, QuotaEntry>,
    classes: HashMap<ClassId, EquivalenceClass>,
    class_ids: HashMap<(Arc<Charge>, Arc<QuotaSet>), ClassId>,
    /// The pods of all classes, by their reason.
    census: Census,
    next_class: u32,
    /// The quotas that are being [swept](quota_entry::Sweep), in the order in which they are looked at next.
    turns: VecDeque<QuotaId>,
    /// Classes that have a pod that was not looked at yet.
    fresh: BTreeSet<ClassId>,
    /// Classes of quotas that rested, to be looked at; perhaps gone by now.
    rested: Vec<ClassId>,
    /// Shared quotas of which something may be shown otherwise than when they were asked for last.
    changed: BTreeSet<QuotaId>,
    /// The quotas whose classes are being [reviewed](quota_entry::Rest::review), in that order.
    reviews: VecDeque<QuotaId>,
    /// The classes that room is kept for: of each of their quotas, [`QuotaEntry::kept`] says whether it keeps it for them.
    reservations: HashMap<ClassId, Reservation>,
    /// The same ones, by the moment (milliseconds) from which on their turn is over unless less is lacked than before.
    dues: Timers<ClassId>,
}

impl ReleaseQueue {
    /// Opens the entry of a quota that one share takes from, with an empty ledger.
    pub fn open(&mut self, quota: QuotaId, ledger: Ledger) {
        self.entries.insert(quota, QuotaEntry::new(ledger, None));
        self.wake(quota);
    }

    /// As [`Self::open`], for a quota of which is known what each share takes.
    pub fn open_shared(&mut self, quota: QuotaId, ledger: Ledger) {
        self.entries.insert(quota, QuotaEntry::new(ledger, Some(Shares::default())));
        self.changed.insert(quota);
        self.wake(quota);
    }

    /// Closes an entry. What is claimed of it is forgotten; pods that wait for it have to leave before.
    pub fn close(&mut self, quota: QuotaId) {
        let entry = self.entries.remove(&quota);
        self.changed.remove(&quota);
        self.reviews.retain(|other| *other != quota);
        if entry.is_some_and(|entry| entry.sweep.is_some()) {
            self.turns.retain(|other| *other != quota);
        }
    }

    /// No pod that takes from this quota is released until [`Self::resume`].
    pub fn pause(&mut self, quota: QuotaId) {
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.rest.paused = true;
        }
    }

    /// Ends [`Self::pause`]: the pods that wait are looked at.
    pub fn resume(&mut self, quota: QuotaId) {
        self.end_rest(quota, |rest| rest.paused = false);
    }

    /// Whether no pod of the quota is released now: it is paused, or its limits have changed and not all its classes are
    /// reviewed.
    #[must_use]
    pub fn rests(&self, quota: QuotaId) -> bool {
        self.entries.get(&quota).is_some_and(|entry| !entry.rest.is_over())
    }

    fn end_rest(&mut self, quota: QuotaId, end: impl FnOnce(&mut Rest)) {
        let Some(rest) = self.entries.get_mut(&quota).map(|entry| &mut entry.rest) else { return };
        end(rest);
        if rest.is_over() {
            self.rested.append(&mut rest.later);
            self.wake(quota);
        }
    }

    #[must_use]
    pub fn ledger(&self, quota: QuotaId) -> Option<&Ledger> {
        self.entries.get(&quota).map(QuotaEntry::ledger)
    }

    /// What the shares of a quota take; `None` if it was not opened as a shared one.
    #[must_use]
    pub fn shares(&self, quota: QuotaId) -> Option<&Shares> {
        self.entries.get(&quota)?.shares()
    }

    /// Whether [`Self::take_changed`] has any.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The shared quotas whose sums, or the number of pods that wait for them, may have changed since this was asked last.
    pub fn take_changed(&mut self) -> BTreeSet<QuotaId> {
        std::mem::take(&mut self.changed)
    }

    /// The shares of a quota that may take something else than when this was asked last.
    pub fn take_changed_shares(&mut self, quota: QuotaId) -> BTreeSet<ShareId> {
        self.entries.get_mut(&quota).map(QuotaEntry::take_changed_shares).unwrap_or_default()
    }

    /// There is something else to show of a quota, if it is a shared one.
    pub fn note_change(&mut self, quota: QuotaId) {
        if self.shares(quota).is_some() {
            self.changed.insert(quota);
        }
    }

    /// How many pods wait for this quota.
    #[must_use]
    pub fn held(&self, quota: QuotaId) -> usize {
        self.entries.get(&quota).map_or(0, |entry| entry.waiting.len())
    }

    /// How many pods wait for this reason.
    #[must_use]
    pub const fn waiting_for(&self, reason: WaitReason) -> usize {
        self.census.of(reason)
    }

    /// A class of waiting pods.
    #[must_use]
    pub fn class(&self, class: ClassId) -> Option<&EquivalenceClass> {
        self.classes.get(&class)
    }

    /// Takes over other limits; false if the ledger has to be made anew (see [`Ledger::replace_hard`]).
    #[must_use]
    pub fn replace_hard(
        &mut self,
        quota: QuotaId,
        hard: impl IntoIterator<Item = (Resource, Amount)>,
    ) -> bool {
        let kept = self.entries.get_mut(&quota).is_some_and(|entry| entry.replace_hard(hard));
        if kept {
            self.begin_review(quota);
        }
        kept
    }

    /// A pod begins to wait, or goes on with it: it is seen waiting since `since_ms`, on any clock that
    /// [`ReleaseQueue::decide`] is given too. `quotas` must not be empty, and each must be open.
    pub fn wait(
        &mut self,
        pod: PodId,
        key: WaitKey,
        since_ms: u64,
        charge: Arc<Charge>,
        quotas: Arc<QuotaSet>,
    ) -> ClassId {
        let id = self.class_of(charge, quotas);
        let Some(class) = self.classes.get_mut(&id) else {
            return id;
        };
        let (old, created) = (class.front(), key.created);
        class.add(key, pod, since_ms);
        self.census.add(class.wait_reason(), 1);
        let quotas = Arc::clone(&class.quotas);
        // A sweep may have passed this place already.
        let is_first = class.front().zip(old.as_ref()).is_none_or(|(new, old)| new.head < old.head);
        if is_first || class.reasons.is_empty() {
            self.fresh.insert(id);
        }
        for quota in quotas.iter() {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.waiting.insert((created, pod));
            }
            self.note_change(*quota);
        }
        self.move_front(id, old.as_ref());
        id
    }

    /// A pod waits no more (deleted, changed, or no longer to be held). Returns whether it did wait.
    pub fn leave(&mut self, id: ClassId, key: &WaitKey) -> bool {
        let Some(class) = self.classes.get(&id) else {
            return false;
        };
        let is_eldest = class.eldest().is_some_and(|(_, eldest)| eldest == *key);
        if self.take(id, key).is_none() {
            return false;
        }
        if is_eldest {
            self.give_turn_up(id);
        }
        true
    }

    fn take(&mut self, id: ClassId, key: &WaitKey) -> Option<PodId> {
        let class = self.classes.get_mut(&id)?;
        let old = class.front();
        let pod = class.take(key)?;
        self.census.remove(class.wait_reason(), 1);
        let quotas = Arc::clone(&class.quotas);
        for quota in quotas.iter() {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.waiting.remove(&(key.created, pod));
            }
            self.note_change(*quota);
        }
        self.move_front(id, old.as_ref());
        Some(pod)
    }
}
