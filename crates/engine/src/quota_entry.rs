//! One quota's entry, and the claims on the entries of a [`ReleaseQueue`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::charge::{Amount, Charge};
use crate::ledger::{Claim, Ledger};
use crate::long_queue::LongQueue;
use crate::release_queue::ReleaseQueue;
use crate::resource::Resource;
use crate::wait_order::{Age, ClassId, EquivalenceClass, Front, QuotaId, WaitKey};

/// A quota: its ledger and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct QuotaEntry {
    pub(crate) ledger: Ledger,
    /// The head of each class that waits for this quota and could ever fit.
    pub(crate) heads: BTreeSet<(WaitKey, ClassId)>,
    /// More about these classes, if they are many.
    long: Option<Box<LongQueue>>,
    /// Classes that could not fit even if the quotas were empty.
    pub(crate) never_fits: BTreeSet<ClassId>,
    pub(crate) held: usize,
    /// The class that room is kept for, with its quotas.
    pub(crate) reserving: Option<(ClassId, Arc<[QuotaId]>)>,
    /// Other quotas in which room is kept for a class that also takes from this one.
    pub(crate) reserving_elsewhere: BTreeSet<(QuotaId, ClassId)>,
    /// What ends makes no room, see [`ReleaseQueue::freeze`].
    frozen: bool,
    pub(crate) rest: Rest,
}

/// While either is so, no pod is released.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// See [`ReleaseQueue::pause`].
    pub(crate) paused: bool,
    /// Its limits have changed, and which of its classes could ever fit is not known of all yet.
    pub(crate) reviewed: bool,
    /// The classes that are to be looked at afterwards.
    pub(crate) later: Vec<ClassId>,
}

impl Rest {
    pub(crate) const fn is_over(&self) -> bool {
        !self.paused && !self.reviewed
    }
}

/// A queue with so many classes gets a [`LongQueue`], and loses it when it has half as many. Most quotas have few waiting
/// pods, and 10,000 quotas must not take more than a few megabytes.
const LONG: usize = 16;

impl QuotaEntry {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger, ..Self::default() }
    }

    /// The class waits with these pods in front; `classes` has it so already.
    pub(crate) fn enlist(
        &mut self,
        id: ClassId,
        front: &Front,
        charge: &Charge,
        classes: &HashMap<ClassId, EquivalenceClass>,
    ) {
        self.heads.insert((front.head.clone(), id));
        match &mut self.long {
            Some(long) => long.add(id, front, charge),
            None if self.heads.len() >= LONG => {
                self.long = Some(Box::new(LongQueue::of(&self.heads, classes)));
            }
            None => {}
        }
    }

    pub(crate) fn strike(&mut self, id: ClassId, front: &Front, charge: &Charge) {
        self.heads.remove(&(front.head.clone(), id));
        if self.heads.len() < LONG / 2 {
            self.long = None;
        } else if let Some(long) = &mut self.long {
            long.remove(id, front, charge);
        }
    }

    /// Of the first `limit` classes in the order of age those that have waited since this moment or before.
    pub(crate) fn impatient(
        &self,
        since_ms: Option<u64>,
        limit: usize,
        classes: &HashMap<ClassId, EquivalenceClass>,
    ) -> Vec<ClassId> {
        let waits_long = |(age, _): &(Age, ClassId)| Some(age.0) <= since_ms;
        if let Some(long) = &self.long {
            let eldest = long.eldest.iter().take(limit);
            return eldest.take_while(|one| waits_long(one)).map(|(_, id)| *id).collect();
        }
        let eldest = self.heads.iter().filter_map(|(_, id)| Some((classes.get(id)?.eldest()?, *id)));
        let mut eldest: Vec<_> = eldest.filter(waits_long).collect();
        eldest.sort_unstable();
        eldest.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether there is room for this and pods are released.
    pub(crate) fn lets_in(&self, charge: &Charge) -> bool {
        self.rest.is_over() && self.ledger.excess(charge, None).is_empty()
    }

    /// Whether the same classes wait in both.
    pub(crate) fn lists_the_same(&self, other: &Self) -> bool {
        self.heads == other.heads
            && self.never_fits == other.never_fits
            && (self.long.is_none() || other.long.is_none() || self.long == other.long)
    }

    /// Whether it is known that none of the classes fits, because all ask for a resource of which there is less than the
    /// least of them asks for. Costs time in the number of resources, not of classes.
    pub(crate) fn is_full_for_all(&self) -> bool {
        let Some(long) = &self.long else { return false };
        long.lacks_the_least_need(&self.ledger, self.heads.len())
    }
}

impl ReleaseQueue {
    /// Adds a claim to each of the quotas.
    pub fn apply(&mut self, claim: Claim, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.ledger.apply(claim, charge);
            }
            self.room_shrank(*quota);
        }
    }

    /// Takes a claim back, exactly as it was added; the pods that wait for these quotas are looked at again.
    pub fn revert(&mut self, claim: Claim, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.ledger.revert(claim, charge);
                self.wake(*quota);
            }
        }
    }

    /// A pod that was, or may have been, released has ended: its claim is taken back, unless the entry is
    /// frozen. Then what it took stays taken, as in flight.
    pub fn end(&mut self, claim: Claim, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.ledger.revert(claim, charge);
                if entry.frozen {
                    entry.ledger.apply(Claim::InFlight, charge);
                } else {
                    self.wake(*quota);
                }
            }
        }
    }

    /// An assumed charge was seen released: it is counted from now on.
    pub fn confirm(&mut self, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.ledger.revert(Claim::Assumed, charge);
                entry.ledger.apply(Claim::Counted, charge);
            }
        }
    }

    /// A pod that was not assumed here is seen released by another process: counted, and no longer in flight.
    pub fn arrive(&mut self, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.ledger.arrive(charge);
                entry.ledger.apply(Claim::Counted, charge);
                self.wake(*quota);
            }
            self.room_shrank(*quota);
        }
    }

    /// See [`Ledger::reserve_in_flight`].
    pub fn reserve_in_flight(
        &mut self,
        quota: QuotaId,
        recorded: impl IntoIterator<Item = (Resource, Amount)>,
        unrecorded: &[&Charge],
    ) -> bool {
        let added = self
            .entries
            .get_mut(&quota)
            .is_some_and(|entry| entry.ledger.reserve_in_flight(recorded, unrecorded));
        self.room_shrank(quota);
        added
    }

    /// Until [`Self::forget_in_flight`], what ends stays taken: another leader gives away room of this quota
    /// too, and may have given away the room of a pod before its end is seen here.
    pub fn freeze(&mut self, quota: QuotaId) {
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.frozen = true;
        }
    }

    /// See [`Self::freeze`].
    #[must_use]
    pub fn is_frozen(&self, quota: QuotaId) -> bool {
        self.entries.get(&quota).is_some_and(|entry| entry.frozen)
    }

    /// Forgets what was in flight and ends [`Self::freeze`]. Returns whether anything was in flight.
    pub fn forget_in_flight(&mut self, quota: QuotaId) -> bool {
        let any = self.entries.get_mut(&quota).is_some_and(|entry| {
            entry.frozen = false;
            entry.ledger.forget_in_flight()
        });
        if any {
            self.wake(quota);
        }
        any
    }
}
