//! The stage of each pod, and with it what the pod claims of its quotas.

mod owned;
mod tally;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluice_engine::{Charge, Claim, Deadline, Exchange, PodId, QuotaId, QuotaSet, ReleaseQueue, WaitKey};
use sluice_index::{PodRecord, push_tightly};

use super::owners::{Owners, Payer, Wait};
use crate::stage::Stage;
pub use tally::Held;
use tally::Tally;

/// What a recorded charge, or a list that confirms it, means for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing more is awaited: the gate is to be removed.
    ByAll,
    /// Others are awaited still.
    BySome,
    /// The charge is not that of the pod's present stage.
    Unrelated,
}

/// Invariant: of each pod the queue holds exactly what its stage says: a place in a class while it waits, an assumed or a
/// counted charge in each of the stage's quotas, else nothing. Of pods with an [owner](Owners) that is charged in their
/// place it holds what they claim together: in each quota the largest of their charges. Each method that begins or ends a
/// claim changes both.
#[derive(Debug, Default)]
pub struct PodStages {
    queue: ReleaseQueue,
    /// By the number of the pod's handle.
    stages: Vec<Stage>,
    /// Of the stages that are no part of the queue.
    tally: Tally,
    /// Since when each pod with this controller's gate has been seen (milliseconds).
    held_since_ms: HashMap<PodId, u64>,
    /// The deadlines of those that one is near of.
    near: HashMap<PodId, Deadline>,
    last_serial: u64,
    owners: Owners,
    /// Another leader may have released a further pod of an owner, or be doing so: nothing of that is recorded beside what
    /// the others of its pods take.
    doubted: bool,
    /// Quotas in which room has been kept on that account.
    kept_in: BTreeSet<QuotaId>,
}

impl PodStages {
    /// All ledgers, and the pods that wait.
    pub const fn queue(&self) -> &ReleaseQueue {
        &self.queue
    }

    /// For all that is no claim of a pod.
    pub const fn queue_mut(&mut self) -> &mut ReleaseQueue {
        &mut self.queue
    }

    pub const fn owners(&self) -> &Owners {
        &self.owners
    }

    pub fn get(&self, id: PodId) -> &Stage {
        const FOREIGN: &Stage = &Stage::Foreign;
        self.stages.get(id.0 as usize).unwrap_or(FOREIGN)
    }

    fn set(&mut self, id: PodId, stage: Stage) {
        let at = id.0 as usize;
        while self.stages.len() <= at {
            push_tightly(&mut self.stages, Stage::default());
        }
        if let Some(slot) = self.stages.get_mut(at) {
            self.tally.replace(slot, &stage);
            *slot = stage;
        }
    }

    /// A number that no decision had before.
    pub fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// The pod is held, since `now_ms` if it was not before.
    pub fn hold(&mut self, id: PodId, now_ms: u64) {
        self.held_since_ms.entry(id).or_insert(now_ms);
    }

    fn since_ms(&self, id: PodId) -> u64 {
        self.held_since_ms.get(&id).copied().unwrap_or_default()
    }

    /// The pod is not held any more. Returns since when it was.
    pub fn end_hold(&mut self, id: PodId) -> Option<u64> {
        self.near.remove(&id);
        self.held_since_ms.remove(&id)
    }

    /// A deadline of the pod that is held is near, or none is.
    pub fn hasten(&mut self, id: PodId, record: &PodRecord, deadline: Option<Deadline>) {
        match deadline {
            Some(deadline) => self.near.insert(id, deadline),
            None => self.near.remove(&id),
        };
        if let Stage::Waiting(class) = *self.get(id) {
            let key = self.owners.wait(id).map_or_else(|| record.wait_key(), |wait| wait.key.clone());
            self.queue.hasten(class, &key, deadline);
        }
    }

    /// How many pods are held for this reason.
    pub const fn held_for(&self, why: Held) -> usize {
        match why {
            Held::Waits(reason) => self.queue.waiting_for(reason),
            Held::Other(kind) => self.tally.of(kind),
        }
    }

    pub fn held(&self) -> impl ExactSizeIterator<Item = PodId> {
        self.held_since_ms.keys().copied()
    }

    /// The pod claims nothing, and gets a stage without a claim.
    pub fn place(&mut self, id: PodId, stage: Stage) {
        debug_assert!(matches!(stage, Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_)), "{stage:?}");
        self.set(id, stage);
    }

    /// The pod claims nothing, is [held](Self::hold), and begins to wait.
    pub fn wait(&mut self, id: PodId, record: &PodRecord, payer: Payer, quotas: Arc<QuotaSet>) {
        let key = record.wait_key();
        let charge = match &payer.owner {
            Some(owner) => {
                let is_more = self.owners.charged(owner).is_some_and(|(_, charge)| charge != payer.charge);
                let wait = Wait { key: key.clone(), with: is_more.then(|| Arc::clone(&payer.charge)) };
                self.owners.join(id, owner, Some(wait));
                Arc::new(self.need(owner, &payer.charge, &quotas))
            }
            None => payer.charge,
        };
        self.begin_waiting(id, key, charge, quotas);
    }

    fn begin_waiting(&mut self, id: PodId, key: WaitKey, charge: Arc<Charge>, quotas: Arc<QuotaSet>) {
        let class = self.queue.wait(id, key.clone(), self.since_ms(id), charge, quotas);
        if let Some(deadline) = self.near.get(&id) {
            self.queue.hasten(class, &key, Some(*deadline));
        }
        self.set(id, Stage::Waiting(class));
    }

    /// The pod claims nothing, and is counted.
    pub fn count(&mut self, id: PodId, payer: Payer, quotas: Arc<QuotaSet>) {
        let Payer { charge, owner } = payer;
        let Some(owner) = owner else {
            self.queue.apply(Claim::Counted, &quotas, &charge);
            return self.set(id, Stage::Counted { charge, quotas });
        };
        self.begin_owned(id, &owner, Stage::Counted { charge, quotas }, Exchange::Decision);
    }

    /// The pod claims nothing, and is counted as one that another process released.
    pub fn arrive(&mut self, id: PodId, payer: Payer, quotas: Arc<QuotaSet>) {
        let Payer { charge, owner } = payer;
        let Some(owner) = owner else {
            self.queue.arrive(&quotas, &charge);
            return self.set(id, Stage::Counted { charge, quotas });
        };
        self.begin_owned(id, &owner, Stage::Counted { charge, quotas }, Exchange::Arrival);
    }

    /// The queue has decided to release the pod, and assumes its charge. So many quotas have to record that, or lists to
    /// confirm it. Returns the decision's serial.
    pub fn decide(&mut self, id: PodId, charge: Arc<Charge>, quotas: Arc<QuotaSet>, awaited: u32) -> u64 {
        let serial = self.next_serial();
        match self.owners.owner_of(id).cloned() {
            None => self.set(id, Stage::Assumed { charge, quotas, awaited, serial }),
            Some(owner) => {
                // The pod has waited for what was missing of the owner's charge. Where that is more than is missing now, the
                // rest is given back or kept like a charge that ends.
                let whole = self.owners.charged_with(id).unwrap_or_else(|| Arc::clone(&charge));
                let stage = Stage::Assumed { charge: whole, quotas, awaited, serial };
                self.change_owned(&owner, vec![(id, stage)], &charge, Exchange::End);
            }
        }
        serial
    }

    /// The pod claims nothing, but its gate is being removed by this decision: its charge is assumed.
    pub fn assume_in_flight(&mut self, id: PodId, payer: Payer, quotas: Arc<QuotaSet>, serial: u64) {
        let Payer { charge, owner } = payer;
        let Some(owner) = owner else {
            self.queue.apply(Claim::Assumed, &quotas, &charge);
            return self.set(id, Stage::Assumed { charge, quotas, awaited: 0, serial });
        };
        let stage = Stage::Assumed { charge, quotas, awaited: 0, serial };
        self.begin_owned(id, &owner, stage, Exchange::Decision);
    }

    /// The pod was seen released: what is assumed is counted. Returns the charge.
    pub fn confirm(&mut self, id: PodId) -> Option<Arc<Charge>> {
        let Stage::Assumed { charge, quotas, .. } = self.get(id) else { return None };
        let (charge, quotas) = (Arc::clone(charge), Arc::clone(quotas));
        let stage = Stage::Counted { charge: Arc::clone(&charge), quotas: Arc::clone(&quotas) };
        match self.owners.owner_of(id).cloned() {
            None => {
                self.queue.confirm(&quotas, &charge);
                self.set(id, stage);
            }
            Some(owner) => {
                let nothing = Charge::default();
                self.change_owned(&owner, vec![(id, stage)], &nothing, Exchange::Decision);
            }
        }
        Some(charge)
    }

    /// One more quota has recorded the charge of this decision, or a list has confirmed it.
    pub fn recorded(&mut self, id: PodId, decision: u64) -> Recorded {
        match self.stages.get_mut(id.0 as usize) {
            Some(Stage::Assumed { awaited, serial, .. } | Stage::Free { awaited, serial })
                if *serial == decision && *awaited > 0 =>
            {
                *awaited = awaited.saturating_sub(1);
                if *awaited == 0 { Recorded::ByAll } else { Recorded::BySome }
            }
            _ => Recorded::Unrelated,
        }
    }

    /// Whether the gate may be removed.
    pub fn may_be_released(&self, id: PodId) -> bool {
        matches!(self.get(id), Stage::Assumed { awaited: 0, .. } | Stage::Free { awaited: 0, .. })
    }

    /// Whether the pod waits for this decision to be recorded, or confirmed by a list.
    pub fn is_awaiting(&self, id: PodId, decision: u64) -> bool {
        matches!(
            self.get(id),
            Stage::Assumed { serial, awaited: 1.., .. } | Stage::Free { serial, awaited: 1.. } if *serial == decision
        )
    }

    /// Whether the pod waits for quotas to record the charge of this decision.
    pub fn awaits(&self, id: PodId, decision: u64) -> bool {
        // A pod that is being released although its charge is not recorded went before there was a quota.
        matches!(self.get(id), Stage::Assumed { serial, awaited: 1.., .. } if *serial == decision)
    }

    /// The pod has ended or changed: ends its claim. `record` is the pod as it was when it claimed, as far as its place in
    /// the order goes. Returns the quotas that it claimed of.
    pub fn end_claim(&mut self, id: PodId, record: &PodRecord) -> Option<Arc<QuotaSet>> {
        self.leave(id, record, Exchange::End)
    }

    /// Takes the claim back: the pod was certainly not released on account of it, or claims it again at once. Returns the
    /// quotas that it claimed of.
    pub fn revert_claim(&mut self, id: PodId, record: &PodRecord) -> Option<Arc<QuotaSet>> {
        self.leave(id, record, Exchange::Decision)
    }

    fn leave(&mut self, id: PodId, record: &PodRecord, why: Exchange) -> Option<Arc<QuotaSet>> {
        if let Some(owner) = self.owners.owner_of(id).cloned() {
            return self.end_owned(id, &owner, why);
        }
        let drop_claim = if why == Exchange::End { ReleaseQueue::end } else { ReleaseQueue::revert };
        let slot = self.stages.get_mut(id.0 as usize)?;
        self.tally.replace(slot, &Stage::default());
        match std::mem::take(slot) {
            Stage::Waiting(class) => {
                let quotas = self.queue.class(class).map(|class| Arc::clone(class.quotas()));
                self.queue.leave(class, &record.wait_key());
                quotas
            }
            Stage::Assumed { charge, quotas, .. } => {
                drop_claim(&mut self.queue, Claim::Assumed, &quotas, &charge);
                Some(quotas)
            }
            Stage::Counted { charge, quotas } => {
                drop_claim(&mut self.queue, Claim::Counted, &quotas, &charge);
                Some(quotas)
            }
            Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_) => None,
        }
    }
}
