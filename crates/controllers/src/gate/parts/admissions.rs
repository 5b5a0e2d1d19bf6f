//! What is charged for updates of pods beside what the pods are counted with, until the watch shows what became of them.

use std::collections::{BTreeMap, HashMap};

use sluice_engine::{Charge, Claim, PodId, QuotaId, ReleaseQueue, ScopeFacts, ShareId, Timers};
use sluice_index::{PodFacts, Version};

use crate::gate::admission::{CHANGED, Judgement, Ticket};
use crate::gate::config::Moment;

/// Pods that are read at a time, to learn what became of updates that were admitted and never seen.
const READS_AT_A_TIME: usize = 32;

/// A pod that was not read is read this much later (milliseconds).
const READ_AGAIN_MS: u64 = 1_000;

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

/// A charge by quota.
pub type Parts = BTreeMap<QuotaId, Charge>;

/// What is charged for updates of one pod.
#[derive(Debug, Default)]
struct Admitted {
    /// Of the quotas that are charged.
    share: ShareId,
    /// The latest version that a request was about.
    version: Version,
    /// When no request can be in flight any more (milliseconds).
    until_ms: u64,
    /// What is charged, whether recorded or not.
    wanted: Wanted,
    /// What was allowed.
    granted: Wanted,
    /// What `wanted` takes beside what the pod is counted with.
    held: Parts,
    /// Decisions, by serial, and how many quotas have not recorded each.
    awaited: Vec<(u64, usize)>,
    tickets: Vec<Ticket>,
}

impl Admitted {
    /// Keeps only what was allowed. Returns the questions without an answer.
    fn revert(&mut self) -> Vec<Ticket> {
        self.awaited.clear();
        self.wanted = self.granted.clone();
        std::mem::take(&mut self.tickets)
    }
}

/// A charge that is to be held for a pod, see [`Admissions::hold`].
pub struct Hold {
    /// The share of the pod's namespace.
    pub share: ShareId,
    /// The version that the request is about.
    pub version: Version,
    /// When the request cannot be in flight any more (milliseconds).
    pub until_ms: u64,
    /// What the pod may come to take.
    pub wanted: Wanted,
    /// What that is beside what the pod is counted with.
    pub parts: Parts,
}

/// All of them, and answers that are to be given.
///
/// Invariant: of each pod the [`ReleaseQueue`] holds, as assumed, exactly the parts that are held here. A question has one
/// answer: at once, when its charge is recorded, or when that is taken back.
#[derive(Debug, Default)]
pub struct Admissions {
    by_pod: HashMap<PodId, Admitted>,
    answers: Vec<(Ticket, Judgement)>,
    /// Pods about which no request can be in flight any more.
    to_read: Vec<PodId>,
    /// Pods to look at again at a moment (milliseconds).
    later: Timers<PodId>,
}

impl Admissions {
    pub fn is_empty(&self) -> bool {
        self.by_pod.is_empty()
    }

    /// What the pod may come to take by what was asked for so far.
    pub fn wanted(&self, id: PodId) -> Option<&Wanted> {
        self.by_pod.get(&id).map(|admitted| &admitted.wanted)
    }

    /// What the pod may come to take by what was allowed so far.
    pub fn granted(&self, id: PodId) -> Option<&Wanted> {
        self.by_pod.get(&id).map(|admitted| &admitted.granted)
    }

    /// What is held for the pod.
    pub fn held(&self, id: PodId) -> Option<&Parts> {
        self.by_pod.get(&id).map(|admitted| &admitted.held)
    }

    /// What is held in the quota for pods of this share, by pod.
    pub fn held_in(&self, quota: QuotaId, share: ShareId) -> impl Iterator<Item = &Charge> {
        let of_share = self.by_pod.values().filter(move |admitted| admitted.share == share);
        of_share.filter_map(move |admitted| admitted.held.get(&quota))
    }

    /// The latest version that a request about the pod was about.
    pub fn version(&self, id: PodId) -> Option<Version> {
        self.by_pod.get(&id).map(|admitted| admitted.version)
    }

    /// Holds what the queue has just claimed. `more` quotas have to record it by the decision `serial`. False if nothing is
    /// to be recorded: then it is granted already.
    pub fn hold(&mut self, id: PodId, hold: Hold, serial: u64, more: usize) -> bool {
        let admitted = self.by_pod.entry(id).or_insert_with(|| {
            self.later.set_earlier(id, hold.until_ms);
            Admitted { share: hold.share, ..Admitted::default() }
        });
        if !hold.version.is_older_than(admitted.version) {
            admitted.version = hold.version;
        }
        admitted.until_ms = hold.until_ms;
        admitted.wanted = hold.wanted;
        admitted.held = hold.parts;
        if more > 0 {
            admitted.awaited.push((serial, more));
        }
        if admitted.awaited.is_empty() {
            admitted.granted = admitted.wanted.clone();
            return false;
        }
        admitted.tickets.push(serial);
        true
    }

    /// Holds other parts for the pod. Returns the quotas that are concerned.
    pub fn replace_held(&mut self, id: PodId, parts: Parts, queue: &mut ReleaseQueue) -> Vec<QuotaId> {
        let Some(admitted) = self.by_pod.get_mut(&id) else { return Vec::new() };
        if admitted.held == parts {
            return Vec::new();
        }
        // First what is new: there is no moment without either.
        for (quota, charge) in &parts {
            queue.apply_to(*quota, Claim::Assumed, admitted.share, charge);
        }
        for (quota, charge) in &admitted.held {
            queue.revert_from(*quota, Claim::Assumed, admitted.share, charge);
        }
        let old = std::mem::replace(&mut admitted.held, parts);
        old.keys().chain(admitted.held.keys()).copied().collect()
    }

    /// One more quota has recorded the charge of this decision.
    pub fn recorded(&mut self, id: PodId, serial: u64) {
        let Some(admitted) = self.by_pod.get_mut(&id) else { return };
        for (decision, left) in &mut admitted.awaited {
            if *decision == serial {
                *left = left.saturating_sub(1);
            }
        }
        admitted.awaited.retain(|(_, left)| *left > 0);
        if admitted.awaited.is_empty() {
            admitted.granted = admitted.wanted.clone();
            let tickets = std::mem::take(&mut admitted.tickets);
            self.answer(tickets, &Judgement::Allowed);
        }
    }

    /// The decision will not be recorded: only what was allowed is still wanted. False if the pod does not await it.
    pub fn revert(&mut self, id: PodId, serial: u64) -> bool {
        let awaits =
            |admitted: &&mut Admitted| admitted.awaited.iter().any(|(decision, _)| *decision == serial);
        let Some(admitted) = self.by_pod.get_mut(&id).filter(awaits) else { return false };
        let tickets = admitted.revert();
        self.answer(tickets, &CHANGED);
        true
    }

    /// As [`Self::revert`], all decisions about these pods. Returns the pods that there are any of.
    pub fn revert_all(&mut self, is_meant: impl Fn(PodId) -> bool) -> Vec<PodId> {
        let (mut pods, mut tickets) = (Vec::new(), Vec::new());
        for (id, admitted) in self.by_pod.iter_mut().filter(|(id, _)| is_meant(**id)) {
            tickets.append(&mut admitted.revert());
            pods.push(*id);
        }
        self.answer(tickets, &CHANGED);
        pods
    }

    /// Nothing is held for the pod any more; its questions get this answer. Returns the quotas that are concerned.
    pub fn end(&mut self, id: PodId, judgement: &Judgement, queue: &mut ReleaseQueue) -> Vec<QuotaId> {
        let quotas = self.replace_held(id, Parts::new(), queue);
        if let Some(admitted) = self.by_pod.remove(&id) {
            self.answer(admitted.tickets, judgement);
        }
        quotas
    }

    /// The webhook does not wait for the answer to this question any more.
    pub fn abandon(&mut self, ticket: Ticket) {
        for admitted in self.by_pod.values_mut() {
            admitted.tickets.retain(|asked| *asked != ticket);
        }
    }

    /// These questions get this answer.
    pub fn answer(&mut self, tickets: Vec<Ticket>, judgement: &Judgement) {
        self.answers.extend(tickets.into_iter().map(|ticket| (ticket, judgement.clone())));
    }

    pub fn take_answers(&mut self) -> Vec<(Ticket, Judgement)> {
        std::mem::take(&mut self.answers)
    }

    /// Has the pods read about which no request can be in flight any more.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some(id) = self.later.pop_due(now.mono_ms) {
            if self.has_expired(id, now) {
                self.to_read.push(id);
            }
        }
    }

    /// Whether no request about the pod can be in flight any more. If one can, its end is noted.
    pub fn has_expired(&mut self, id: PodId, now: Moment) -> bool {
        let Some(until_ms) = self.by_pod.get(&id).map(|admitted| admitted.until_ms) else { return false };
        if until_ms > now.mono_ms {
            self.later.set_earlier(id, until_ms);
        }
        until_ms <= now.mono_ms
    }

    /// Pods to read now.
    pub fn take_reads(&mut self, now: Moment) -> Vec<PodId> {
        let mut ids = std::mem::take(&mut self.to_read);
        for id in ids.split_off(ids.len().min(READS_AT_A_TIME)) {
            self.read_later(id, now);
        }
        ids
    }

    /// The pod could not be read.
    pub fn read_later(&mut self, id: PodId, now: Moment) {
        self.later.set_earlier(id, now.mono_ms + READ_AGAIN_MS);
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }
}
