//! Pods with an owner that is charged in their place: what they claim together.
//!
//! In each quota that is the largest charge of those of them that are counted or assumed there. So the owner is charged as
//! long as one of them is, never twice, and a further pod of it waits only for what its owner is not charged yet: mostly for
//! nothing. In a frozen quota it waits for the whole charge, as another leader may have seen the end of the others and given
//! their room away; what it would not have needed is kept in flight until that is known. Each change costs time in the
//! number of the owner's pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::{Charge, Exchange, PodId, QuotaId, QuotaSet, Taken};

use super::PodStages;
use crate::cluster::machines::Owner;
use crate::stage::Stage;

impl PodStages {
    /// From now on this is charged for the owner, or its pods are charged for themselves. What its counted pods take is
    /// changed at once, the new charge for the old one; those that wait go on to wait for what is missing of the new one.
    /// What is assumed keeps its charge. Returns the quotas of which is taken something else.
    pub fn recharge(&mut self, owner: &Arc<Owner>, charge: Option<&Arc<Charge>>) -> BTreeSet<QuotaId> {
        self.owners.set_charge(owner, charge.cloned());
        let Some(charge) = charge else { return BTreeSet::new() };
        let pods = self.owners.pods(owner).iter();
        let counted = pods.filter_map(|pod| match self.get(*pod) {
            Stage::Counted { quotas, .. } => {
                Some((*pod, Stage::Counted { charge: Arc::clone(charge), quotas: Arc::clone(quotas) }))
            }
            _ => None,
        });
        let counted = counted.collect();
        self.change_owned(owner, counted, &Charge::default(), Exchange::Decision)
    }

    /// What pods of the owner take together of a quota.
    pub fn taken(&self, owner: &Owner, quota: QuotaId) -> Taken {
        self.taken_without(owner, quota, &[])
    }

    /// What they would take without some of them.
    pub fn taken_without(&self, owner: &Owner, quota: QuotaId, without: &[PodId]) -> Taken {
        let (mut counted, mut all) = (Charge::default(), Charge::default());
        for pod in self.owners.pods(owner).iter().filter(|pod| !without.contains(pod)) {
            let (Stage::Counted { charge, quotas } | Stage::Assumed { charge, quotas, .. }) = self.get(*pod)
            else {
                continue;
            };
            // Amounts below zero would make room for others.
            let charge = charge.above(&Charge::default());
            if quotas.binary_search(&quota).is_err() {
                continue;
            }
            if matches!(self.get(*pod), Stage::Counted { .. }) {
                counted = counted.max(&charge);
            }
            all = all.max(&charge);
        }
        Taken { assumed: all.above(&counted), counted }
    }

    /// What is missing of the owner's charge for one more pod in these quotas: the most that is in any of them.
    pub fn need(&self, owner: &Owner, charge: &Charge, quotas: &QuotaSet) -> Charge {
        if quotas.iter().any(|quota| self.queue.is_frozen(*quota)) {
            return charge.above(&Charge::default());
        }
        let missing = quotas.iter().map(|quota| charge.above(&self.taken(owner, *quota).total()));
        missing.fold(Charge::default(), |most, missing| most.max(&missing))
    }

    /// Another leader may be releasing further pods of owners, or giving the room of an owner away whose last pod it has
    /// seen to end. Until [`Self::end_doubt`] the end of an owner's other pods makes no room,
    /// as long as any of its pods waits.
    pub const fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Whatever other leaders have done is seen.
    pub const fn end_doubt(&mut self) {
        self.doubted = false;
    }

    pub const fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// The quotas in which room was kept in doubt since this was asked last.
    pub fn take_kept_in(&mut self) -> BTreeSet<QuotaId> {
        std::mem::take(&mut self.kept_in)
    }

    /// Whether a counted pod takes already, of the same quotas, all that the owner of both is charged, so that this one adds
    /// nothing, and no other leader may think otherwise.
    pub fn is_paid_for(&self, id: PodId, by: PodId, quotas: &QuotaSet) -> bool {
        match (self.get(by), self.owners.charged_with(id)) {
            (Stage::Counted { charge, quotas: theirs }, Some(whole)) => {
                !self.doubted && **theirs == *quotas && charge.covers(&whole)
            }
            _ => false,
        }
    }

    /// The quota is frozen from now on, or no longer.
    pub fn on_freeze(&mut self, quota: QuotaId) {
        let waits = |pod: PodId| match self.get(pod) {
            Stage::Waiting(class) => {
                self.queue.class(*class).is_some_and(|class| class.quotas().contains(&quota))
            }
            _ => false,
        };
        let waiting = self.owners.members().filter(|(pod, _)| waits(*pod));
        let owners: BTreeSet<Arc<Owner>> = waiting.map(|(_, owner)| Arc::clone(owner)).collect();
        for owner in owners {
            self.wait_anew(&owner);
        }
    }

    /// A pod that claims nothing gets this stage, as one of the owner's.
    pub(super) fn begin_owned(&mut self, id: PodId, owner: &Arc<Owner>, stage: Stage, why: Exchange) {
        self.owners.join(id, owner, None);
        self.change_owned(owner, vec![(id, stage)], &Charge::default(), why);
    }

    /// The pod neither waits nor claims any more, and is none of the owner's. Returns its quotas.
    pub(super) fn end_owned(
        &mut self,
        id: PodId,
        owner: &Arc<Owner>,
        why: Exchange,
    ) -> Option<Arc<QuotaSet>> {
        let quotas = match self.get(id) {
            Stage::Waiting(class) => self.queue.class(*class).map(|class| Arc::clone(class.quotas())),
            Stage::Assumed { quotas, .. } | Stage::Counted { quotas, .. } => Some(Arc::clone(quotas)),
            Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_) => None,
        };
        if let (&Stage::Waiting(class), Some(wait)) = (self.get(id), self.owners.wait(id)) {
            self.queue.leave(class, &wait.key);
        }
        self.change_owned(owner, vec![(id, Stage::default())], &Charge::default(), why);
        self.owners.leave(id);
        quotas
    }

    /// Pods of the owner get these stages. `decided` is what the queue has assumed for them already, in each of their
    /// quotas. Returns the quotas of which they claim, or have claimed.
    pub(super) fn change_owned(
        &mut self,
        owner: &Arc<Owner>,
        changes: Vec<(PodId, Stage)>,
        decided: &Charge,
        why: Exchange,
    ) -> BTreeSet<QuotaId> {
        let stages = changes.iter().flat_map(|(pod, stage)| [self.get(*pod), stage]);
        let sets: Vec<Arc<QuotaSet>> = stages.filter_map(claimed_of).map(Arc::clone).collect();
        let share = sets.iter().find(|set| !set.is_empty()).map(|set| set.share()).unwrap_or_default();
        let quotas: BTreeSet<QuotaId> = sets.iter().flat_map(|set| set.iter().copied()).collect();
        let before: Vec<(QuotaId, Taken)> =
            quotas.iter().map(|quota| (*quota, self.taken(owner, *quota))).collect();
        // What this process has decided to release may have been released by a predecessor as well.
        let is_undone = |(pod, stage): &(PodId, Stage)| {
            matches!(self.get(*pod), Stage::Assumed { .. }) && claimed_of(stage).is_none()
        };
        let is_undone = changes.iter().any(is_undone);
        for (pod, stage) in changes {
            self.set(pod, stage);
        }
        let waits = |pod: &PodId| matches!(self.get(*pod), Stage::Waiting(_));
        let is_doubted = is_undone || why == Exchange::End && self.owners.pods(owner).iter().any(waits);
        for (quota, Taken { counted, assumed }) in before {
            let assumed = Charge::from_pairs(assumed.iter().chain(decided.iter()).cloned());
            let why = if is_doubted && self.doubted { Exchange::Doubt } else { why };
            if why == Exchange::Doubt {
                self.kept_in.insert(quota);
            }
            self.queue.exchange(quota, share, &Taken { counted, assumed }, &self.taken(owner, quota), why);
        }
        self.wait_anew(owner);
        quotas
    }

    /// What is missing of the owner's charge may be something else than before.
    fn wait_anew(&mut self, owner: &Owner) {
        for pod in self.owners.pods(owner).to_vec() {
            let Some(charge) = self.owners.charged_with(pod) else { return };
            let Stage::Waiting(old) = *self.get(pod) else { continue };
            let Some(class) = self.queue.class(old) else { continue };
            let quotas = Arc::clone(class.quotas());
            let need = self.need(owner, &charge, &quotas);
            let wait = self.owners.wait(pod).filter(|_| **class.charge() != need);
            let Some(key) = wait.map(|wait| wait.key.clone()) else { continue };
            // If it waits no more, it was just decided on.
            if self.queue.leave(old, &key) {
                self.begin_waiting(pod, key, Arc::new(need), quotas);
            }
        }
    }
}

/// The quotas of which a pod claims in this stage.
fn claimed_of(stage: &Stage) -> Option<&Arc<QuotaSet>> {
    match stage {
        Stage::Assumed { quotas, .. } | Stage::Counted { quotas, .. } => Some(quotas),
        Stage::Foreign | Stage::Waiting(_) | Stage::Free { .. } | Stage::Stuck(_) => None,
    }
}
