//! One quota: its ledger, and the classes that wait for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::equivalence_class::{ClassId, EquivalenceClass, Front};
use super::long_queue::LongQueue;
use super::quota_set::{QuotaSet, ShareId};
use super::shares::Shares;
use super::wait_order::{Age, QuotaId, WaitKey};
use crate::charge::{Amount, Charge};
use crate::ledger::{Claim, Ledger};
use crate::resource::Resource;

/// A quota: its ledger and who waits for it.
#[derive(Debug, Default)]
pub(super) struct QuotaEntry {
    ledger: Ledger,
    /// Of a quota that is opened as a shared one.
    shares: Option<Shares>,
    /// The head of each class that waits for this quota and could ever fit.
    pub(super) heads: BTreeSet<(WaitKey, ClassId)>,
    /// More about these classes, if they are many.
    long: Option<Box<LongQueue>>,
    /// Classes that could not fit even if the quotas were empty.
    pub(super) never_fits: BTreeSet<ClassId>,
    pub(super) held: usize,
    /// The class that room is kept for, with its quotas.
    pub(super) reserving: Option<(ClassId, Arc<QuotaSet>)>,
    /// Other quotas in which room is kept for a class that also takes from this one.
    pub(super) reserving_elsewhere: BTreeSet<(QuotaId, ClassId)>,
    /// What ends makes no room, see [`ReleaseQueue::freeze`](super::ReleaseQueue::freeze).
    pub(super) frozen: bool,
    pub(super) rest: Rest,
}

/// While either is so, no pod is released.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// See [`ReleaseQueue::pause`](super::ReleaseQueue::pause).
    pub(super) paused: bool,
    /// Its limits have changed, and which of its classes could ever fit is not known of all yet.
    pub(super) reviewed: bool,
    /// The classes that are to be looked at afterwards.
    pub(super) later: Vec<ClassId>,
}

impl Rest {
    pub(super) const fn is_over(&self) -> bool {
        !self.paused && !self.reviewed
    }
}

/// A queue with so many classes gets a [`LongQueue`], and loses it when it has half as many. Most quotas have few waiting
/// pods, and 10,000 quotas must not take more than a few megabytes.
const LONG: usize = 16;

impl QuotaEntry {
    pub(super) fn new(ledger: Ledger, shares: Option<Shares>) -> Self {
        Self { ledger, shares, ..Self::default() }
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn shares(&self) -> Option<&Shares> {
        self.shares.as_ref()
    }

    pub(super) fn take_changed_shares(&mut self) -> BTreeSet<ShareId> {
        self.shares.as_mut().map(Shares::take_changed).unwrap_or_default()
    }

    /// Adds a charge of this share.
    pub(super) fn apply(&mut self, claim: Claim, share: ShareId, charge: &Charge) {
        self.ledger.apply(claim, charge);
        if let Some(shares) = &mut self.shares {
            shares.add(&self.ledger, share, charge);
        }
    }

    /// Takes a charge back that was added with the same claim and share.
    pub(super) fn revert(&mut self, claim: Claim, share: ShareId, charge: &Charge) {
        self.ledger.revert(claim, charge);
        if let Some(shares) = &mut self.shares {
            shares.subtract(&self.ledger, share, charge);
        }
    }

    /// The pod has ended: as [`Self::revert`], but in a frozen entry what it took stays taken, as in flight. Returns whether
    /// that made room.
    pub(super) fn end(&mut self, claim: Claim, share: ShareId, charge: &Charge) -> bool {
        self.revert(claim, share, charge);
        if self.frozen {
            self.keep_in_flight(charge);
        }
        !self.frozen
    }

    /// What is taken no longer stays taken.
    pub(super) fn keep_in_flight(&mut self, charge: &Charge) {
        self.ledger.apply(Claim::InFlight, charge);
    }

    /// What is assumed is counted from now on.
    pub(super) fn confirm(&mut self, charge: &Charge) {
        self.ledger.revert(Claim::Assumed, charge);
        self.ledger.apply(Claim::Counted, charge);
    }

    /// What was in flight is counted from now on, as this share's.
    pub(super) fn arrive(&mut self, share: ShareId, charge: &Charge) {
        self.arrived(charge);
        self.apply(Claim::Counted, share, charge);
    }

    /// It is no longer in flight.
    pub(super) fn arrived(&mut self, charge: &Charge) {
        self.ledger.arrive(charge);
    }

    /// See [`Ledger::reserve_in_flight`].
    pub(super) fn reserve_in_flight(
        &mut self,
        recorded: impl IntoIterator<Item = (Resource, Amount)>,
        unrecorded: &[&Charge],
    ) -> bool {
        self.ledger.reserve_in_flight(recorded, unrecorded)
    }

    /// Forgets what was in flight; the entry is frozen no more. Returns whether anything was.
    pub(super) fn forget_in_flight(&mut self) -> bool {
        self.frozen = false;
        self.ledger.forget_in_flight()
    }

    /// See [`Ledger::replace_hard`].
    pub(super) fn replace_hard(&mut self, hard: impl IntoIterator<Item = (Resource, Amount)>) -> bool {
        self.ledger.replace_hard(hard)
    }

    /// The class waits with these pods in front; `classes` has it so already.
    pub(super) fn enlist(
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

    pub(super) fn strike(&mut self, id: ClassId, front: &Front, charge: &Charge) {
        self.heads.remove(&(front.head.clone(), id));
        if self.heads.len() < LONG / 2 {
            self.long = None;
        } else if let Some(long) = &mut self.long {
            long.remove(id, front, charge);
        }
    }

    /// Of the first `limit` classes in the order of age those that have waited since this moment or before.
    pub(super) fn impatient(
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
    pub(super) fn lets_in(&self, charge: &Charge) -> bool {
        self.rest.is_over() && self.ledger.excess(charge, None).is_empty()
    }

    /// Whether the same classes wait in both.
    pub(super) fn lists_the_same(&self, other: &Self) -> bool {
        self.heads == other.heads
            && self.never_fits == other.never_fits
            && (self.long.is_none() || other.long.is_none() || self.long == other.long)
    }

    /// Whether it is known that none of the classes fits, because all ask for a resource of which there is less than the
    /// least of them asks for. Costs time in the number of resources, not of classes.
    pub(super) fn is_full_for_all(&self) -> bool {
        let Some(long) = &self.long else { return false };
        long.lacks_the_least_need(&self.ledger, self.heads.len())
    }
}
