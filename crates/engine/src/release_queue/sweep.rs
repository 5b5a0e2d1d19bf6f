//! Which of the waiting pods are released.
//!
//! A quota that may have got room is swept: the heads of its classes are looked at in their order, a bounded number in
//! one decision, quotas in turn. So a tenant with many different waiting pods does not delay the pods of other quotas.

use std::cmp::Ordering;
use std::sync::Arc;

use smallvec::SmallVec;

use super::equivalence_class::EquivalenceClass;
use super::lanes::Head;
use super::quota_set::{QuotaSet, ShareId};
use super::wait_order::{ClassId, Patience, QuotaId};
use super::{Decision, ReleaseQueue};
use crate::ledger::Claim;

/// How many classes of one quota are looked at before it is another's turn.
const TURN: usize = 16;

impl ReleaseQueue {
    /// Whether there is anything to decide.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.turns.is_empty()
            || !self.fresh.is_empty()
            || !self.reviews.is_empty()
            || !self.rested.is_empty()
    }

    /// Looks again at those that wait for this quota, at the next decision.
    pub fn wake(&mut self, quota: QuotaId) {
        let Some(entry) = self.entries.get_mut(&quota) else { return };
        if let Some(sweep) = &mut entry.sweep {
            sweep.again |= !sweep.at.is_at_start();
            return;
        }
        entry.sweep = Some(Box::default());
        self.turns.push_back(quota);
    }

    /// Releases, in order, every pod that fits; smaller ones may pass one that does not, unless room is kept for it
    /// because it has waited too long. In a shared quota pods of the share that takes least go first, and the order of
    /// shares follows what goes.
    ///
    /// Looks only at the classes of quotas that may have got room and at newly arrived pods, and at no more than
    /// `looks` of them: while [`ReleaseQueue::has_news`], there is more to decide,
    /// and again [when that is due](Self::next_due_ms).
    pub fn decide(&mut self, patience: Patience, mut looks: usize) -> Vec<Decision> {
        let mut decision = Deciding { queue: self, patience, made: Vec::new() };
        loop {
            decision.queue.end_turns(patience, &mut looks);
            if looks == 0 || !decision.queue.has_news() {
                break;
            }
            looks -= decision.queue.go_on_reviewing(TURN.min(looks));
            decision.look_at_fresh(&mut looks);
            if let Some(quota) = decision.queue.turns.pop_front() {
                decision.sweep(quota, &mut looks);
            }
        }
        decision.made
    }

    fn next_head(&self, quota: QuotaId) -> Option<&Head> {
        self.entries.get(&quota)?.next_head()
    }

    /// The head to look at first so that this quota's sweep gets on: where a pod takes from several quotas, those
    /// that come before it in any of them come first. Two shared quotas may differ about that.
    fn first_head(&self, quota: QuotaId) -> Option<Head> {
        let mut head = self.next_head(quota)?;
        let mut seen = SmallVec::<[ClassId; 8]>::new();
        loop {
            seen.push(head.1);
            let class = self.classes.get(&head.1)?;
            let next = class.quotas.iter().filter_map(|other| Some((*other, self.next_head(*other)?)));
            let earlier = next.filter(|(other, next)| {
                !seen.contains(&next.1) && self.is_before(*other, next, (class.quotas.share(), head))
            });
            match earlier.map(|(_, next)| next).min_by(|one, other| self.compare(one, other)) {
                Some(earlier) => head = earlier,
                None => return Some(head.clone()),
            }
        }
    }

    /// Two heads that no quota compares. Deadlines say nothing across shares.
    fn compare(&self, one: &Head, other: &Head) -> Ordering {
        let share = |head: &Head| self.classes.get(&head.1).map(|class| class.quotas.share());
        if share(one) == share(other) {
            return one.cmp(other);
        }
        let (((_, key), id), ((_, other), other_id)) = (one, other);
        (key, id).cmp(&(other, other_id))
    }

    fn is_before(&self, quota: QuotaId, one: &Head, other: (ShareId, &Head)) -> bool {
        let share = self.classes.get(&one.1).map(|class| class.quotas.share());
        self.entries.get(&quota).zip(share).is_some_and(|(entry, share)| entry.is_before((share, one), other))
    }

    /// A quota in whose sweep this class will be looked at.
    pub(super) fn swept_before(&self, id: ClassId) -> Option<QuotaId> {
        let class = self.classes.get(&id).filter(|class| class.fits_when_empty)?;
        let (share, head) = (class.quotas.share(), (class.head()?, id));
        class.quotas.iter().copied().find(|quota| {
            let Some(entry) = self.entries.get(quota) else { return false };
            entry.next_head().is_some_and(|next| {
                let is_behind = || self.is_before(*quota, next, (share, &head));
                *next == head || is_behind() && !entry.is_passed(share, &head)
            })
        })
    }

    /// Whether one of the class's quotas rests. It is looked at when that ends.
    pub(super) fn class_rests(&mut self, id: ClassId) -> bool {
        let Some(class) = self.classes.get(&id) else { return true };
        for quota in class.quotas.iter() {
            let Some(entry) = self.entries.get_mut(quota) else { continue };
            if !entry.rest.is_over() {
                entry.rest.later.push(id);
                return true;
            }
        }
        false
    }

    fn finish_sweep(&mut self, quota: QuotaId) {
        let Some(sweep) = self.entries.get_mut(&quota).and_then(|entry| entry.sweep.take()) else { return };
        self.fresh.extend(sweep.postponed.into_iter().filter(|class| self.classes.contains_key(class)));
        if sweep.again {
            self.wake(quota);
        }
    }
}

/// One decision in the making.
pub(super) struct Deciding<'q> {
    pub(super) queue: &'q mut ReleaseQueue,
    patience: Patience,
    made: Vec<Decision>,
}

impl Deciding<'_> {
    fn sweep(&mut self, quota: QuotaId, looks: &mut usize) {
        if let Some(entry) = self.queue.entries.get_mut(&quota).filter(|entry| !entry.rest.is_over()) {
            // The quota is swept as a whole afterwards.
            let sweep = entry.sweep.take();
            entry.rest.later.extend(sweep.into_iter().flat_map(|sweep| sweep.postponed));
            *looks = looks.saturating_sub(1);
            return;
        }
        self.queue.reserve(quota, self.patience);
        for _ in 0..TURN {
            *looks = looks.saturating_sub(1);
            let Some(head) = self.queue.first_head(quota) else {
                self.queue.finish_sweep(quota);
                return;
            };
            let quotas = self.queue.classes.get(&head.1).map(|class| Arc::clone(&class.quotas));
            for (other, share) in quotas.iter().flat_map(|it| it.iter().map(|other| (other, it.share()))) {
                if let Some(entry) = self.queue.entries.get_mut(other)
                    && entry.next_head() == Some(&head)
                {
                    entry.pass(share, head.clone());
                }
            }
            let released = self.look(head.1);
            // The next head of the class comes later in the order, unless another pod of it went in place of this one.
            if released && self.queue.classes.get(&head.1).and_then(EquivalenceClass::head) == Some(head.0) {
                self.queue.fresh.insert(head.1);
            }
            if *looks == 0 {
                break;
            }
        }
        self.queue.turns.push_back(quota);
    }

    /// Releases a pod of the class, or says why not. Returns whether it has released one.
    pub(super) fn look(&mut self, id: ClassId) -> bool {
        if self.queue.class_rests(id) {
            return false;
        }
        let reasons = self.queue.obstacles(id);
        if reasons.is_empty() {
            return self.release(id);
        }
        let Some(class) = self.queue.classes.get_mut(&id) else { return false };
        if !class.was_told(&reasons) {
            self.made.push(Decision::Held(id));
        }
        let (before, pods) = (class.wait_reason(), class.pods().len());
        class.reasons = reasons;
        let after = class.wait_reason();
        self.queue.census.remove(before, pods);
        self.queue.census.add(after, pods);
        false
    }

    fn release(&mut self, id: ClassId) -> bool {
        let Some(class) = self.queue.classes.get(&id) else { return false };
        let (charge, quotas) = (Arc::clone(&class.charge), Arc::clone(&class.quotas));
        let has_turn = self.queue.reservations.contains_key(&id);
        let first = if has_turn { class.claimant() } else { class.head().map(|(_, key)| key) };
        let Some(key) = first else { return false };
        let near_since_ms = class.near_since_ms(&key);
        let overtaken = self.overtaken(id, &quotas);
        let Some(pod) = self.queue.take(id, &key) else { return false };
        self.queue.apply(Claim::Assumed, &quotas, &charge);
        for quota in quotas.iter() {
            if let Some(entry) = self.queue.entries.get_mut(quota) {
                entry.update_lane(quotas.share(), |lane| {
                    lane.went();
                    // The wait of those that it went before counts from when it came, as if it waited on in their place.
                    lane.serve(near_since_ms.unwrap_or_default());
                });
            }
        }
        if let Some(class) = self.queue.classes.get_mut(&id).filter(|_| has_turn) {
            class.in_vain = 0;
        }
        self.queue.end_turn(id, self.patience, true);
        for overtaken in overtaken {
            self.queue.end_turn(overtaken, self.patience, false);
        }
        self.made.push(Decision::Release { pod, charge, quotas });
        true
    }

    /// The classes of its share that room is kept for and that this one goes before: it has their turn.
    fn overtaken(&self, id: ClassId, quotas: &QuotaSet) -> SmallVec<[ClassId; 4]> {
        let Some(class) = self.queue.classes.get(&id) else { return SmallVec::new() };
        let ahead = quotas.iter().filter_map(|quota| self.queue.ahead(*quota, id));
        ahead.filter(|(_, ahead)| class.hurries_before(ahead)).map(|(id, _)| id).collect()
    }
}
