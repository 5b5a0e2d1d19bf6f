//! What other leaders have charged (`docs/protocols.md`, *Take-over*).
//!
//! A process that leads may find charges in a quota's status that it did not make: a predecessor's, whose
//! releases are not all seen yet, or those of a leader that has not noticed that it is none any more. Their room is
//! kept until the requests of both are dead
//! ([`GateConfig::in_flight_grace_ms`](super::config::GateConfig::in_flight_grace_ms)), and then until the watch of
//! pods has come to what there is after that: what was done is seen by then, however late the watch is.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use sluice_engine::{Charge, PodId, QuotaId, Resource};

use super::action::Action;
use super::config::Moment;
use super::stage::Stage;
use super::state::State;

/// By whom the last charge of a quota was made: the last digits of its `status.charges`. The digits before them
/// count the charges.
///
/// Only so can a process whose write was not answered tell its own record from that of another leader that
/// charged the same amounts to the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(i64);

impl Stamp {
    const ALL: i64 = 1_000_000;

    /// A stamp that hardly any other process has.
    pub fn random() -> Self {
        Self::numbered(RandomState::new().hash_one(Self::ALL))
    }

    /// Never 0, which is the stamp of a quota that was never charged.
    pub fn numbered(number: u64) -> Self {
        Self(1 + i64::try_from(number % (Self::ALL as u64 - 1)).unwrap_or_default())
    }

    /// Whether we made the charge that was recorded with this.
    fn made(self, charges: i64) -> bool {
        charges.rem_euclid(Self::ALL) == self.0
    }

    /// What to record with `more` charges. Differs from what is recorded now unless there are none.
    pub fn after(self, recorded: i64, more: usize) -> i64 {
        if more == 0 {
            return recorded;
        }
        i64::try_from(more)
            .ok()
            .and_then(|more| recorded.div_euclid(Self::ALL).checked_add(more)?.checked_mul(Self::ALL))
            .and_then(|count| count.checked_add(self.0))
            // Another client has written nonsense; the count starts again.
            .unwrap_or(self.0)
    }
}

/// Quotas in which room is kept although no request of another leader can be under way any more.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    waiting: BTreeSet<QuotaId>,
    /// For these the watch of pods is catching up.
    catching_up: Option<BTreeSet<QuotaId>>,
}

impl Unseen {
    pub fn forget(&mut self, id: QuotaId) {
        self.waiting.remove(&id);
        if let Some(catching_up) = &mut self.catching_up {
            catching_up.remove(&id);
        }
    }

    pub fn has(&self, id: QuotaId) -> bool {
        self.waiting.contains(&id) || self.catching_up.as_ref().is_some_and(|quotas| quotas.contains(&id))
    }
}

impl State {
    /// No request of another leader can be under way any more. What they have done may be unseen.
    pub(super) fn end_honouring(&mut self, id: QuotaId) {
        self.unseen.waiting.insert(id);
    }

    pub(super) fn plan_catching_up(&mut self) -> Option<Action> {
        if self.unseen.waiting.is_empty() || self.unseen.catching_up.is_some() {
            return None;
        }
        self.unseen.catching_up = Some(std::mem::take(&mut self.unseen.waiting));
        Some(Action::CatchUp)
    }

    /// Whatever other leaders have done is seen.
    pub(super) fn settle_catching_up(&mut self) {
        for id in self.unseen.catching_up.take().unwrap_or_default() {
            self.queue.forget_in_flight(id);
            self.dirty.insert(id);
        }
    }

    /// Heeds a charge that another leader has made since `before` was recorded. A record without a new charge
    /// gives nothing away, whatever it says: it is put right.
    pub(super) fn heed_charge(&mut self, id: QuotaId, before: i64, now: Moment) {
        let Some(quota) = self.quotas.get(id) else { return };
        let charges = quota.recorded.charges;
        if !self.leading || charges == before || self.stamp.made(charges) {
            return;
        }
        self.decide_anew(id, now);
        self.honour_recorded(id, now);
        // There is another leader, and it may have given away the room of a pod whose end is not seen here
        // yet. So nothing that ends makes room until its requests are dead.
        self.queue.freeze(id);
        self.honour_until(id, now);
    }

    /// Honours what a quota's status holds above the pods' sums, for a while.
    pub(super) fn honour_recorded(&mut self, id: QuotaId, now: Moment) {
        let Some(quota) = self.quotas.get(id) else { return };
        if self.restaging.honours_later(quota.namespace, id) {
            return;
        }
        let recorded: Vec<_> = quota
            .recorded
            .used
            .iter()
            .filter_map(|(key, used)| Some((Resource::from_quota_key(key), used?.into())))
            .collect();
        let writing = self.writings.get(&id);
        let decisions: Vec<(PodId, u64)> = writing
            .into_iter()
            .flat_map(|writing| {
                writing.pending.iter().chain(writing.in_flight.iter().flat_map(|write| &write.charged))
            })
            .copied()
            .collect();
        let mut unrecorded: Vec<Arc<Charge>> = Vec::new();
        let mut ungranted = BTreeSet::new();
        for (pod, decision) in decisions {
            match self.stage(pod) {
                Stage::Assumed { charge, serial, .. } if *serial == decision => {
                    unrecorded.push(Arc::clone(charge));
                }
                _ if ungranted.insert(pod) => unrecorded.extend(self.ungranted(pod, id).map(Arc::new)),
                _ => {}
            }
        }
        let unrecorded: Vec<&Charge> = unrecorded.iter().map(|charge| &**charge).collect();
        if self.queue.honour(id, recorded, &unrecorded) {
            self.honour_until(id, now);
        }
    }

    fn honour_until(&mut self, id: QuotaId, now: Moment) {
        self.unseen.forget(id);
        let until = now.mono_ms.saturating_add(self.config.in_flight_grace_ms);
        self.writings.entry(id).or_default().honoured_until_ms = Some(until);
        self.quota_later.insert((until, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_changes_the_count_and_tells_whose_it_is() {
        let (ours, theirs) = (Stamp::numbered(7), Stamp::numbered(8));
        for recorded in [0, 1, 41_000_008, i64::MAX, i64::MAX - 999_999, i64::MIN, -1, ours.after(0, 1)] {
            let charges = ours.after(recorded, 3);
            assert_ne!(charges, recorded);
            assert!(ours.made(charges) && !theirs.made(charges), "{recorded} became {charges}");
            assert_eq!(ours.after(recorded, 0), recorded, "no charge changes nothing");
        }
        assert!(!Stamp::numbered(u64::MAX).made(0) && !Stamp::numbered(0).made(0), "0 is nobody's");
    }
}
