//! One quota: its ledger, and the classes that wait for it.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use super::account::{Account, Kept};
use super::dominant_share::DominantShare;
use super::equivalence_class::{EquivalenceClass, Front};
use super::lanes::{Cursor, Head, Lane, Turn};
use super::long_queue::LongQueue;
use super::quota_set::ShareId;
use super::shares::Shares;
use super::wait_order::{ClassId, PodId};
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
    pub(super) heads: BTreeSet<Head>,
    /// More about these classes, if they are many or of several shares.
    long: Option<Box<LongQueue>>,
    /// Classes that could not fit even if the quotas were empty.
    pub(super) never_fits: BTreeSet<ClassId>,
    /// Those that wait for it, by the second of their creation.
    pub(super) waiting: BTreeSet<(i64, PodId)>,
    pub(super) kept: Option<Kept>,
    pub(super) account: Account,
    /// What ends makes no room, see [`ReleaseQueue::freeze`](super::ReleaseQueue::freeze).
    pub(super) frozen: bool,
    pub(super) rest: Rest,
    /// It may have got room, and not all that wait were looked at since.
    pub(super) sweep: Option<Box<Sweep>>,
}

/// How far the waiting pods of a quota were looked at since it got room.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) at: Cursor,
    /// The quota got room meanwhile. Those that were passed are looked at again after those that were not: otherwise a
    /// quota that gets room all the time would never look at its last ones.
    pub(super) again: bool,
    /// Classes that came meanwhile, further behind.
    pub(super) postponed: Vec<ClassId>,
    /// How far the shares were searched for one that room is to be kept for, if none was found.
    pub(super) searched: Option<(Turn, ShareId)>,
}

/// While either is so, no pod is released.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// See [`ReleaseQueue::pause`](super::ReleaseQueue::pause).
    pub(super) paused: bool,
    /// The limits have changed: the classes of which it is not known yet whether they could ever fit.
    pub(super) review: Option<Vec<ClassId>>,
    /// The classes that are to be looked at afterwards.
    pub(super) later: Vec<ClassId>,
}

impl Rest {
    pub(super) const fn is_over(&self) -> bool {
        !self.paused && self.review.is_none()
    }
}

/// A queue with so many classes gets a [`LongQueue`], and loses it when it has half as many; that of a shared quota always
/// has one. Most quotas have few waiting pods, and 10,000 quotas must not take more than a few megabytes.
const LONG: usize = 16;

/// Classes that one search for a head looks at.
const SEARCHED: usize = 32;

impl QuotaEntry {
    pub(super) fn new(ledger: Ledger, shares: Option<Shares>) -> Self {
        let long = shares.as_ref().map(|_| Box::default());
        Self { ledger, shares, long, ..Self::default() }
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
            self.rank(share);
        }
    }

    /// Takes a charge back that was added with the same claim and share.
    pub(super) fn revert(&mut self, claim: Claim, share: ShareId, charge: &Charge) {
        self.ledger.revert(claim, charge);
        if let Some(shares) = &mut self.shares {
            shares.subtract(&self.ledger, share, charge);
            self.rank(share);
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

    /// The charge is no longer in flight.
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

    /// How much this share takes, as far as it is known.
    pub(super) fn dominant_share(&self, share: ShareId) -> DominantShare {
        let sums = self.shares.as_ref().map(|shares| shares.get(share));
        sums.map_or(DominantShare::NONE, |sums| DominantShare::of(&self.ledger, sums))
    }

    /// See [`Place::since`](super::lanes::Place::since); 0 in a quota that is not shared.
    pub(super) fn since(&self, share: ShareId) -> u64 {
        let long = self.long.as_ref().filter(|_| self.shares.is_some());
        long.and_then(|long| long.lanes.place(share)).map_or(0, |place| place.since)
    }

    /// Takes over what this share takes now into the order of shares.
    pub(super) fn rank(&mut self, share: ShareId) {
        self.update_lane(share, |_| {});
    }

    /// Whose lane the classes of this share are in.
    fn lane_of(&self, share: ShareId) -> ShareId {
        if self.shares.is_some() { share } else { ShareId::default() }
    }

    pub(super) fn update_lane(&mut self, share: ShareId, change: impl FnOnce(&mut Lane)) {
        let (lane, dominant) = (self.lane_of(share), self.dominant_share(share));
        if let Some(long) = &mut self.long {
            long.lanes.update(lane, dominant, change);
        }
    }

    /// The class of this share waits with other pods in front than before, or begins or ceases to wait; `classes` has it so
    /// already.
    pub(super) fn relist(
        &mut self,
        (id, share): (ClassId, ShareId),
        (old, new): (Option<&Front>, Option<&Front>),
        charge: &Charge,
        classes: &HashMap<ClassId, EquivalenceClass>,
    ) {
        if let Some(old) = old {
            self.heads.remove(&(old.head.clone(), id));
        }
        if let Some(new) = new {
            self.heads.insert((new.head.clone(), id));
        }
        if self.shares.is_none() && self.heads.len() < LONG / 2 {
            self.long = None;
        }
        // In one step: a lane without classes is forgotten.
        self.update_lane(share, |lane| lane.replace(id, old, new));
        match &mut self.long {
            Some(long) if old.is_none() => long.add_needs(charge),
            Some(long) if new.is_none() => long.remove_needs(charge),
            None if self.heads.len() >= LONG => {
                self.long = Some(Box::new(LongQueue::of(&self.heads, classes)));
            }
            _ => {}
        }
    }

    /// The head that the sweep comes to next: in a shared quota of the share that takes least. None: there is no sweep, or
    /// it is at its end.
    pub(super) fn next_head(&self) -> Option<&Head> {
        let cursor = &self.sweep.as_ref()?.at;
        if self.is_full_for_all() {
            return None;
        }
        if let Some(long) = self.long.as_ref().filter(|_| self.shares.is_some()) {
            return long.lanes.next(cursor);
        }
        let passed = cursor.passed(ShareId::default()).map_or(Bound::Unbounded, Bound::Excluded);
        self.heads.range((passed, Bound::Unbounded)).next()
    }

    /// Moves the sweep behind this head of this share.
    pub(super) fn pass(&mut self, share: ShareId, head: Head) {
        let lane = self.lane_of(share);
        let place = self.long.as_ref().and_then(|long| long.lanes.place(lane)).cloned();
        if let Some(sweep) = &mut self.sweep {
            sweep.at.pass(place, lane, head);
        }
    }

    /// Whether the sweep is behind this head of this share.
    pub(super) fn is_passed(&self, share: ShareId, head: &Head) -> bool {
        let passed = self.sweep.as_ref().and_then(|sweep| sweep.at.passed(self.lane_of(share)));
        passed.is_some_and(|passed| head <= passed)
    }

    /// Whether the one head comes before the other here, each of its share.
    pub(super) fn is_before(&self, one: (ShareId, &Head), other: (ShareId, &Head)) -> bool {
        let (lane, other_lane) = (self.lane_of(one.0), self.lane_of(other.0));
        if lane == other_lane {
            return one.1 < other.1;
        }
        self.long.as_ref().is_some_and(|long| long.lanes.place(lane) < long.lanes.place(other_lane))
    }

    /// Whether a turn may begin: room is kept for none, and may be.
    pub(super) fn may_keep(&self, now_ms: u64) -> bool {
        self.kept.is_none() && self.account.has_some(now_ms)
    }

    pub(super) fn keeps_for(&self, id: ClassId) -> bool {
        self.kept.is_some_and(|kept| kept.class == id)
    }

    /// The next classes behind `searched` that have waited since this moment or before, longest first; of a shared quota the
    /// first one of each share, in the order of their turns.
    pub(super) fn impatient(
        &self,
        since_ms: Option<u64>,
        searched: &mut Option<(Turn, ShareId)>,
        classes: &HashMap<ClassId, EquivalenceClass>,
    ) -> Vec<ClassId> {
        if let Some(long) = &self.long {
            let many = if self.shares.is_some() { (SEARCHED, 1) } else { (1, SEARCHED) };
            return long.lanes.impatient(since_ms, searched, many);
        }
        let eldest = self.heads.iter().filter_map(|(_, id)| Some((classes.get(id)?.eldest()?, *id)));
        let mut eldest: Vec<_> = eldest.filter(|(age, _)| Some(age.0) <= since_ms).collect();
        eldest.sort_unstable();
        eldest.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether the same classes wait in both.
    pub(super) fn lists_the_same(&self, all: &Self) -> bool {
        let longs = self.long.as_ref().zip(all.long.as_ref());
        self.heads == all.heads
            && self.never_fits == all.never_fits
            && longs.is_none_or(|(long, all)| long.lists_the_same(all))
    }

    /// Whether its shares are in the order that follows from what they take.
    pub(super) fn is_in_order(&self) -> bool {
        self.rest.review.is_some()
            || self
                .long
                .as_ref()
                .is_none_or(|long| long.lanes.is_in_order(|share| self.dominant_share(share)))
    }

    /// An entry of the same kind without classes and claims.
    pub(super) fn emptied(&self) -> Self {
        Self::new(Ledger::default(), self.shares.as_ref().map(|_| Shares::default()))
    }

    /// Whether it is known that none of the classes fits, because all ask for a resource of which there is less than the
    /// least of them asks for. Costs time in the number of resources, not of classes.
    fn is_full_for_all(&self) -> bool {
        let Some(long) = &self.long else { return false };
        long.lacks_the_least_need(&self.ledger, self.heads.len())
    }
}
