//! What is charged for updates of pods beside what the pods are counted with, and the answers to questions about updates.

use std::collections::{BTreeMap, HashMap};

use sluice_engine::{Charge, Claim, PodId, QuotaId, ReleaseQueue, ScopeFacts, ShareId};
use sluice_index::PodFacts;

use crate::admission::{Judgement, Ticket};

/// What a pod may come to take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The largest amounts that were asked for.
    pub charge: Charge,
    /// One for each way it may come under scopes; few, as most facts cannot change.
    pub facts: Vec<ScopeFacts>,
}

impl Wanted {
    /// The larger of both: of many requests about one version of a pod one is committed at most.
    pub fn and(&self, facts: &PodFacts) -> Self {
        let mut both = Self { charge: self.charge.max(&facts.charge), facts: self.facts.clone() };
        if !both.facts.contains(&facts.scope_facts) {
            both.facts.push(facts.scope_facts.clone());
        }
        both
    }
}

pub type Parts = BTreeMap<QuotaId, Charge>;

/// What is held for pods that [`Growth`](super::growth::Growth) has, and answers that are to be given.
///
/// Invariant: of each pod the [`ReleaseQueue`] holds, as assumed, exactly the parts that are held here.
#[derive(Debug, Default)]
pub struct Admissions {
    /// By pod, with the share of its namespace.
    held: HashMap<PodId, (ShareId, Parts)>,
    answers: Vec<(Ticket, Judgement)>,
}

impl Admissions {
    pub fn held(&self, id: PodId) -> Option<&Parts> {
        self.held.get(&id).map(|(_, parts)| parts)
    }

    /// What is held in the quota for pods of this share, by pod.
    pub fn held_in(&self, quota: QuotaId, share: ShareId) -> impl Iterator<Item = &Charge> {
        let of_share = self.held.values().filter(move |(other, _)| *other == share);
        of_share.filter_map(move |(_, parts)| parts.get(&quota))
    }

    /// Holds what the queue has just claimed.
    pub fn hold(&mut self, id: PodId, share: ShareId, parts: Parts) {
        self.held.insert(id, (share, parts));
    }

    /// Holds other parts for the pod. Returns the quotas that are concerned.
    pub fn replace_held(&mut self, id: PodId, parts: Parts, queue: &mut ReleaseQueue) -> Vec<QuotaId> {
        let Some((share, held)) = self.held.get_mut(&id) else { return Vec::new() };
        if *held == parts {
            return Vec::new();
        }
        // First what is new: there is no moment without either.
        for (quota, charge) in &parts {
            queue.apply_to(*quota, Claim::Assumed, *share, charge);
        }
        for (quota, charge) in &*held {
            queue.revert_from(*quota, Claim::Assumed, *share, charge);
        }
        let old = std::mem::replace(held, parts);
        old.keys().chain(held.keys()).copied().collect()
    }

    /// Nothing is held for the pod any more. Returns the quotas that are concerned.
    pub fn end(&mut self, id: PodId, queue: &mut ReleaseQueue) -> Vec<QuotaId> {
        let quotas = self.replace_held(id, Parts::new(), queue);
        self.held.remove(&id);
        quotas
    }

    /// These questions get this answer.
    pub fn answer(&mut self, tickets: Vec<Ticket>, judgement: &Judgement) {
        self.answers.extend(tickets.into_iter().map(|ticket| (ticket, judgement.clone())));
    }

    pub fn take_answers(&mut self) -> Vec<(Ticket, Judgement)> {
        std::mem::take(&mut self.answers)
    }
}
