//! Which of the waiting pods are released.
//!
//! A quota that may have got room is swept: the heads of its classes are looked at in their order, a bounded number in
//! one decision, quotas in turn. So a tenant with many different waiting pods does not delay the pods of other quotas.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use super::equivalence_class::{ClassId, EquivalenceClass, Reason};
use super::wait_order::{QuotaId, WaitKey};
use super::{Decision, ReleaseQueue};
use crate::ledger::Claim;

/// How many classes of one quota are looked at before it is another's turn.
const TURN: usize = 16;

/// Classes that have just come are taken so many at a time, and among them the first in the order first.
const FRESH: usize = 64;

/// A class by the pod that is to be looked at.
type Head = (WaitKey, ClassId);

/// How far the waiting pods of a quota were looked at since it got room.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Up to here.
    at: Bound<Head>,
    /// It got room meanwhile. Those that were passed are looked at again after those that were not: otherwise a
    /// quota that gets room all the time would never look at its last ones.
    again: bool,
    /// Classes that came meanwhile, further behind.
    postponed: Vec<ClassId>,
}

/// For which class room is kept, as far as it was asked since something was released.
type Reservations = HashMap<QuotaId, Option<ClassId>>;

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
        if let Some(sweep) = self.sweeps.get_mut(&quota) {
            sweep.again |= sweep.at != Bound::Unbounded;
            return;
        }
        self.sweeps.insert(quota, Sweep { at: Bound::Unbounded, again: false, postponed: Vec::new() });
        self.turns.push_back(quota);
    }

    /// Releases, in order, every pod that fits; smaller ones may pass one that does not, unless room is kept for it
    /// because it has waited since `impatient_since_ms` or before (none has before that clock began).
    ///
    /// Looks only at the classes of quotas that may have got room and at newly arrived pods, and at no more than
    /// `looks` of them: while [`ReleaseQueue::has_news`], there is more to decide.
    pub fn decide(&mut self, impatient_since_ms: Option<u64>, mut looks: usize) -> Vec<Decision> {
        let mut decision =
            Deciding { queue: self, impatient_since_ms, kept: HashMap::new(), made: Vec::new() };
        while looks > 0 && decision.queue.has_news() {
            looks -= decision.queue.go_on_reviewing(TURN.min(looks));
            decision.look_at_fresh(&mut looks);
            if let Some(quota) = decision.queue.turns.pop_front() {
                decision.sweep(quota, &mut looks);
            }
        }
        decision.made
    }

    /// The head that the sweep of this quota comes to next. None: there is no sweep, or it is at its end.
    fn next_head(&self, quota: QuotaId) -> Option<&Head> {
        let sweep = self.sweeps.get(&quota)?;
        let entry = self.entries.get(&quota)?;
        if entry.is_full_for_all() {
            return None;
        }
        entry.heads.range((sweep.at.as_ref(), Bound::Unbounded)).next()
    }

    /// The head to look at first so that this quota's sweep gets on: where a pod takes from several quotas, those
    /// that come before it in any of them come first.
    fn first_head(&self, quota: QuotaId) -> Option<Head> {
        let mut head = self.next_head(quota)?;
        loop {
            let class = self.classes.get(&head.1)?;
            let earlier = class.quotas.iter().filter_map(|other| self.next_head(*other)).min();
            match earlier {
                Some(earlier) if earlier < head => head = earlier,
                _ => return Some(head.clone()),
            }
        }
    }

    /// A quota in whose sweep this class will be looked at.
    fn swept_before(&self, id: ClassId) -> Option<QuotaId> {
        let class = self.classes.get(&id).filter(|class| class.fits_when_empty)?;
        let head = (class.head()?.clone(), id);
        class.quotas.iter().copied().find(|quota| self.next_head(*quota).is_some_and(|next| *next <= head))
    }

    /// Whether one of the class's quotas rests. It is looked at when that ends.
    fn class_rests(&mut self, id: ClassId) -> bool {
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
        let Some(sweep) = self.sweeps.remove(&quota) else { return };
        self.fresh.extend(sweep.postponed.into_iter().filter(|class| self.classes.contains_key(class)));
        if sweep.again {
            self.wake(quota);
        }
    }
}

/// One decision in the making.
struct Deciding<'q> {
    queue: &'q mut ReleaseQueue,
    impatient_since_ms: Option<u64>,
    kept: Reservations,
    made: Vec<Decision>,
}

impl Deciding<'_> {
    fn look_at_fresh(&mut self, looks: &mut usize) {
        let rested = self.queue.rested.len();
        let rested = self.queue.rested.split_off(rested.saturating_sub(FRESH));
        self.queue.fresh.extend(rested);
        let mut batch = Vec::new();
        while batch.len() < FRESH.min(*looks)
            && let Some(id) = self.queue.fresh.pop_first()
        {
            batch.extend(self.queue.classes.get(&id).and_then(|class| Some((class.head()?.clone(), id))));
        }
        batch.sort_unstable();
        for (_, id) in batch {
            if self.queue.class_rests(id) {
                *looks = looks.saturating_sub(1);
                continue;
            }
            if let Some(quota) = self.queue.swept_before(id) {
                if let Some(sweep) = self.queue.sweeps.get_mut(&quota) {
                    sweep.postponed.push(id);
                }
                continue;
            }
            *looks = looks.saturating_sub(1);
            // Its next pod takes the same and may fit too.
            if self.look(id) {
                self.queue.fresh.insert(id);
            }
        }
    }

    fn sweep(&mut self, quota: QuotaId, looks: &mut usize) {
        if let Some(entry) = self.queue.entries.get_mut(&quota).filter(|entry| !entry.rest.is_over()) {
            // It is swept as a whole afterwards.
            let sweep = self.queue.sweeps.remove(&quota);
            entry.rest.later.extend(sweep.into_iter().flat_map(|sweep| sweep.postponed));
            *looks = looks.saturating_sub(1);
            return;
        }
        for _ in 0..TURN {
            *looks = looks.saturating_sub(1);
            let Some(head) = self.queue.first_head(quota) else {
                self.queue.finish_sweep(quota);
                return;
            };
            let quotas = self.queue.classes.get(&head.1).map(|class| Arc::clone(&class.quotas));
            for other in quotas.iter().flat_map(|quotas| quotas.iter()) {
                if self.queue.next_head(*other) == Some(&head)
                    && let Some(sweep) = self.queue.sweeps.get_mut(other)
                {
                    sweep.at = Bound::Excluded(head.clone());
                }
            }
            let released = self.look(head.1);
            // Its next head comes later in the order, unless another of its pods went in place of this one.
            if released && self.queue.classes.get(&head.1).and_then(EquivalenceClass::head) == Some(&head.0) {
                self.queue.fresh.insert(head.1);
            }
            if *looks == 0 {
                break;
            }
        }
        self.queue.turns.push_back(quota);
    }

    /// Releases a pod of the class, or says why not. Returns whether it has released one.
    fn look(&mut self, id: ClassId) -> bool {
        if self.queue.class_rests(id) {
            return false;
        }
        match self.reason_to_hold(id) {
            None => self.release(id),
            Some(reason) => {
                let Some(class) = self.queue.classes.get_mut(&id) else { return false };
                let told = class.reason.as_ref().is_some_and(|old| old.says_the_same(&reason));
                class.reason = Some(reason);
                for quota in self.queue.contest(id, self.impatient_since_ms) {
                    self.kept.remove(&quota);
                }
                if !told {
                    self.made.push(Decision::Held(id));
                }
                false
            }
        }
    }

    fn release(&mut self, id: ClassId) -> bool {
        let Some(class) = self.queue.classes.get(&id) else { return false };
        let (charge, quotas) = (Arc::clone(&class.charge), Arc::clone(&class.quotas));
        let was_kept_room = quotas.iter().any(|quota| self.kept.get(quota) == Some(&Some(id)));
        let first = if was_kept_room { class.eldest().map(|(_, key)| key) } else { class.head().cloned() };
        let Some(key) = first else { return false };
        let Some(pod) = self.queue.take(id, &key) else { return false };
        self.kept.clear();
        self.queue.apply(Claim::Assumed, &quotas, &charge);
        self.made.push(Decision::Release { pod, charge, quotas });
        true
    }

    /// The class that room of the quota is kept for.
    fn keeper(&mut self, quota: QuotaId) -> Option<ClassId> {
        // It may have ended because another quota keeps room since.
        let is_kept = |kept: &Option<ClassId>| kept.is_none_or(|id| self.queue.is_reserving(quota, id));
        if let Some(kept) = self.kept.get(&quota).copied().filter(is_kept) {
            return kept;
        }
        let found = self.queue.reserve(quota, self.impatient_since_ms);
        self.kept.insert(quota, found);
        found
    }

    fn reason_to_hold(&mut self, id: ClassId) -> Option<Reason> {
        let class = self.queue.classes.get(&id)?;
        let (charge, quotas) = (Arc::clone(&class.charge), Arc::clone(&class.quotas));
        for quota in quotas.iter() {
            let Some(entry) = self.queue.entries.get(quota) else { continue };
            let excess = entry.ledger().excess(&charge, None);
            if !excess.is_empty() {
                return Some(Reason { quota: *quota, excess, behind: None });
            }
        }
        for quota in quotas.iter() {
            let keeper = self.keeper(*quota);
            let Some(ahead) = keeper.filter(|ahead| *ahead != id).and_then(|id| self.queue.classes.get(&id))
            else {
                continue;
            };
            let Some(entry) = self.queue.entries.get(quota) else { continue };
            let excess = entry.ledger().excess(&charge, Some(&ahead.charge));
            if !excess.is_empty() {
                let behind = ahead.eldest().and_then(|(_, key)| ahead.pod(&key));
                return Some(Reason { quota: *quota, excess, behind });
            }
        }
        None
    }
}
