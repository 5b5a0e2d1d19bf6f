//! What pods without gates are to take more: charged before it is admitted (`docs/protocols.md`, *Charged at
//! admission*).
//!
//! A resize, or an update that moves a pod under another scope, takes more of a quota and passes no gate. So the webhook
//! asks the leader about each, which charges it, records that like a release, and then answers. The charge is one of the
//! pod, the largest that was asked for: the API server asks anew whenever the pod has changed before it could commit
//! (`k8s.io/apiserver/pkg/storage/etcd3/store.go`, `GuaranteedUpdate`), so of many requests about one version one is
//! committed at most. It ends when a later version of the pod is seen ([`super::expiry`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluice_engine::{Charge, Claim, PodId, QuotaId, Reason, ScopeFacts};
use sluice_index::{Gates, NamespaceId, PodFacts, PodWire, Version};

use super::config::{GateConfig, Moment};
use super::message::exceeded;
use super::stage::Stage;
use super::state::State;

/// An update of a pod that is being admitted.
#[derive(Clone, Debug)]
pub struct Change {
    /// The pod as it is stored, if the request is to commit.
    pub before: PodFacts,
    /// The pod as it is to be.
    pub after: PodFacts,
    /// Nothing is going to be changed: nothing is charged.
    pub dry_run: bool,
}

impl Change {
    /// Reads the two pods of a review. It takes time in the number of their containers, so it needs no [`State`], which
    /// only one has at a time.
    #[must_use]
    pub fn read(before: &PodWire, after: &PodWire, dry_run: bool, config: &GateConfig, now: Moment) -> Self {
        let read = |wire| PodFacts::read(wire, config.gate, config.rules, now.unix_s());
        Self { before: read(before), after: read(after), dry_run }
    }
}

/// Whether a [`Change`] may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is charged, or takes nothing more.
    Allowed,
    /// There is no room, in the words of Kubernetes' own quota.
    Refused(String),
    /// It cannot be decided now; the same request may be allowed in a moment.
    Undecided(&'static str),
}

/// Tells one question from all others.
pub type Ticket = u64;

/// What comes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The answer.
    Judged(Judgement),
    /// The answer comes when the charge is recorded, as [`super::Action::Answer`].
    Recording(Ticket),
}

/// What a pod may come to take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    charge: Charge,
    /// One for each way it may come under scopes; few, as most facts cannot change.
    facts: Vec<ScopeFacts>,
}

impl Wanted {
    fn and(&self, facts: &PodFacts) -> Self {
        let mut both = Self { charge: self.charge.max(&facts.charge), facts: self.facts.clone() };
        if !both.facts.contains(&facts.scope_facts) {
            both.facts.push(facts.scope_facts.clone());
        }
        both
    }
}

pub(super) type Parts = BTreeMap<QuotaId, Charge>;

/// What is charged for changes of a pod beside what it is counted with.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// The latest version that a request was about.
    pub version: Version,
    /// When no request can be under way any more (milliseconds).
    pub until_ms: u64,
    /// What is charged, whether recorded or not.
    pub wanted: Wanted,
    /// What was answered with yes.
    pub granted: Wanted,
    /// What `wanted` takes beside what the pod is counted with.
    held: Parts,
    /// Decisions, by serial, and how many quotas have not recorded each.
    pub awaited: Vec<(u64, usize)>,
    pub tickets: Vec<Ticket>,
}

/// All of them, and answers that are to be given.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    pub by_pod: HashMap<PodId, Admitted>,
    answers: Vec<(Ticket, Judgement)>,
    /// Pods about which no request can be under way any more.
    pub to_read: Vec<PodId>,
}

impl Admissions {
    /// What is charged beside what pods of the quota are counted with.
    pub fn held_in(&self, quota: QuotaId) -> impl Iterator<Item = &Charge> {
        self.by_pod.values().filter_map(move |admitted| admitted.held.get(&quota))
    }

    pub fn is_empty(&self) -> bool {
        self.by_pod.is_empty()
    }

    pub fn take_answers(&mut self) -> Vec<(Ticket, Judgement)> {
        std::mem::take(&mut self.answers)
    }

    pub fn answer(&mut self, tickets: Vec<Ticket>, judgement: &Judgement) {
        self.answers.extend(tickets.into_iter().map(|ticket| (ticket, judgement.clone())));
    }
}

/// The watch has to come that far first.
pub(super) const UNSEEN: Judgement = Judgement::Undecided("this version of the pod was not seen yet");

pub(super) const CHANGED: Judgement = Judgement::Undecided("the pod or a quota has changed meanwhile");

impl State {
    /// Judges an update of a pod, and charges it if it takes more.
    pub fn ask(&mut self, change: &Change, now: Moment) -> Asked {
        match self.judge(change, now) {
            Ok(asked) => asked,
            Err(judgement) => Asked::Judged(judgement),
        }
    }

    fn judge(&mut self, change: &Change, now: Moment) -> Result<Asked, Judgement> {
        const ALLOWED: Asked = Asked::Judged(Judgement::Allowed);
        if !self.leading {
            return Err(Judgement::Undecided("this process does not lead"));
        }
        let Change { before, after, dry_run } = change;
        if before.gates == Gates::Ours || after.gates != Gates::None {
            // It is charged when it is released, and a release of the pod as it was fails when it has changed.
            return Ok(ALLOWED);
        }
        if before.version == Version::default() {
            return Err(Judgement::Undecided("the pod has no version"));
        }
        let Some(namespace) = self.namespaces.id(&before.namespace) else { return Err(UNSEEN) };
        match self.namespaces.is_targeted(namespace) {
            Some(true) => {}
            Some(false) => return Ok(ALLOWED),
            None => return Err(UNSEEN),
        }
        let known = self.pods.find(namespace, &before.name);
        let Some(id) = known.filter(|id| self.pods.get(*id).is_some_and(|pod| pod.uid == before.uid)) else {
            return Err(UNSEEN);
        };
        let seen = self.pods.get(id).map(|pod| pod.version).unwrap_or_default();
        if before.version.is_older_than(seen) {
            // Such a request cannot commit: the API server will ask again.
            return Ok(ALLOWED);
        }
        if seen.is_older_than(before.version) {
            return Err(UNSEEN);
        }
        if self.restaging.rests(namespace) {
            return Err(CHANGED);
        }
        if let Some(invalid) = self.invalid_quota(namespace).filter(|_| self.takes_more(id, after)) {
            return Err(Judgement::Refused(self.invalid_message(invalid)));
        }
        let admitted = self.admissions.by_pod.get(&id);
        let wanted = admitted.map(|admitted| admitted.wanted.clone()).unwrap_or_default().and(after);
        let Some(parts) = self.parts_of(id, namespace, &wanted) else { return Err(UNSEEN) };
        let held = self.admissions.by_pod.get(&id).map(|admitted| &admitted.held);
        let more = above(&parts, held);
        if let Some(field) = after.unreadable.as_ref().filter(|_| !more.is_empty()) {
            return Err(Judgement::Refused(format!("cannot be charged: {field}")));
        }
        if more.iter().any(|(quota, _)| self.queue.rests(*quota)) {
            return Err(CHANGED);
        }
        let impatient_since_ms = now.mono_ms.checked_sub(self.config.patience_ms);
        if *dry_run {
            let fits = self.queue.can_grow(&more, impatient_since_ms);
            return fits.map(|()| ALLOWED).map_err(|reason| self.refusal(&reason));
        }
        if more.is_empty() && held.is_none() {
            return Ok(ALLOWED);
        }
        self.queue.grow(&more, impatient_since_ms).map_err(|reason| self.refusal(&reason))?;
        Ok(self.hold(id, before.version, wanted, parts, &more, now))
    }

    /// What was claimed is held, and recorded before it is answered.
    fn hold(
        &mut self,
        id: PodId,
        version: Version,
        wanted: Wanted,
        parts: Parts,
        more: &[(QuotaId, Charge)],
        now: Moment,
    ) -> Asked {
        self.next_serial += 1;
        let serial = self.next_serial;
        let until_ms = now.mono_ms + self.config.admission_life_ms;
        let admitted = self.admissions.by_pod.entry(id).or_insert_with(|| {
            self.pod_later.insert((until_ms, id));
            Admitted::default()
        });
        if !version.is_older_than(admitted.version) {
            admitted.version = version;
        }
        admitted.until_ms = until_ms;
        admitted.wanted = wanted;
        admitted.held = parts;
        if !more.is_empty() {
            admitted.awaited.push((serial, more.len()));
        }
        if admitted.awaited.is_empty() {
            admitted.granted = admitted.wanted.clone();
            return Asked::Judged(Judgement::Allowed);
        }
        admitted.tickets.push(serial);
        for (quota, _) in more {
            self.writings.entry(*quota).or_default().pending.push((id, serial));
            self.dirty.insert(*quota);
        }
        Asked::Recording(serial)
    }

    /// What the pod is counted with, and in which quotas; nothing of one that gates of others hold.
    fn counted_of(&self, id: PodId) -> Option<(Arc<Charge>, Arc<[QuotaId]>)> {
        match self.stage(id) {
            Stage::Counted { charge, quotas } | Stage::Assumed { charge, quotas, .. } => {
                Some((Arc::clone(charge), Arc::clone(quotas)))
            }
            Stage::Foreign => Some((Arc::default(), Arc::from([]))),
            _ => None,
        }
    }

    /// Whether it would take more of any resource than now, or come under other scopes.
    fn takes_more(&self, id: PodId, after: &PodFacts) -> bool {
        let scopes = self.pods.get(id).map(|pod| &*pod.scope_facts);
        let counted = self.counted_of(id).map(|(charge, _)| charge).unwrap_or_default();
        scopes != Some(&after.scope_facts) || !after.charge.above(&counted).is_empty()
    }

    /// The webhook waits no longer for the answer to this question.
    pub(super) fn abandon(&mut self, ticket: Ticket) {
        for admitted in self.admissions.by_pod.values_mut() {
            admitted.tickets.retain(|asked| *asked != ticket);
        }
    }

    /// What the pod may come to take beside what it is counted with; `None` if it is not counted.
    fn parts_of(&mut self, id: PodId, namespace: NamespaceId, wanted: &Wanted) -> Option<Parts> {
        let (counted, counted_in) = self.counted_of(id)?;
        let mut parts = Parts::new();
        for facts in &wanted.facts {
            for quota in self.matching_quotas(namespace, facts).iter() {
                let Some(ledger) = self.queue.ledger(*quota) else { continue };
                let more = if counted_in.contains(quota) {
                    wanted.charge.above(&counted)
                } else {
                    wanted.charge.above(&Charge::default())
                };
                let limited = more.iter().filter(|(resource, _)| ledger.line(resource).is_some()).cloned();
                let part = Charge::from_pairs(limited);
                if !part.is_empty() {
                    parts.insert(*quota, part);
                }
            }
        }
        Some(parts)
    }

    fn refusal(&self, reason: &Reason) -> Judgement {
        let quota = self.quotas.get(reason.quota);
        let words = quota.and_then(|quota| {
            let ahead = reason.behind.and_then(|pod| self.pods.get(pod));
            let behind = ahead.filter(|pod| pod.namespace == quota.namespace).map(|pod| &*pod.name);
            Some(exceeded(&quota.name, quota.compiled.as_ref().ok()?, reason, behind))
        });
        words.map_or(CHANGED, Judgement::Refused)
    }

    /// One more quota has recorded the charge.
    pub(super) fn admission_is_recorded(&mut self, id: PodId, serial: u64) {
        let Some(admitted) = self.admissions.by_pod.get_mut(&id) else { return };
        for (decision, left) in &mut admitted.awaited {
            if *decision == serial {
                *left = left.saturating_sub(1);
            }
        }
        admitted.awaited.retain(|(_, left)| *left > 0);
        if admitted.awaited.is_empty() {
            admitted.granted = admitted.wanted.clone();
            let tickets = std::mem::take(&mut admitted.tickets);
            self.admissions.answer(tickets, &Judgement::Allowed);
        }
    }

    /// A decision was not recorded, and not to be: whatever was not answered with yes is given back.
    pub(super) fn take_back_admission(&mut self, id: PodId, serial: u64) {
        let Some(admitted) = self.admissions.by_pod.get_mut(&id) else { return };
        if !admitted.awaited.iter().any(|(decision, _)| *decision == serial) {
            return;
        }
        admitted.awaited.clear();
        admitted.wanted = admitted.granted.clone();
        let tickets = std::mem::take(&mut admitted.tickets);
        self.admissions.answer(tickets, &CHANGED);
        self.hold_anew(id);
        self.stats.reverted += 1;
    }

    /// The pod is counted with something else now: what is held beside that changes, whether there is room or not.
    pub(super) fn hold_anew(&mut self, id: PodId) {
        let Some(admitted) = self.admissions.by_pod.get(&id) else { return };
        let wanted = admitted.wanted.clone();
        let Some(namespace) = self.pods.get(id).map(|pod| pod.namespace) else { return };
        match self.parts_of(id, namespace, &wanted).filter(|_| !wanted.facts.is_empty()) {
            Some(parts) => self.replace_held(id, parts),
            None => self.end_admission(id, &CHANGED),
        }
    }

    pub(super) fn replace_held(&mut self, id: PodId, parts: Parts) {
        let Some(admitted) = self.admissions.by_pod.get_mut(&id) else { return };
        let old = std::mem::replace(&mut admitted.held, parts.clone());
        if old == parts {
            return;
        }
        // First what is new: there is no moment without either.
        for (quota, charge) in &parts {
            self.queue.apply(Claim::Assumed, &[*quota], charge);
        }
        for (quota, charge) in &old {
            self.queue.revert(Claim::Assumed, &[*quota], charge);
        }
        self.dirty.extend(old.keys().chain(parts.keys()));
    }

    /// What is held for the pod in the quota and was not answered with yes.
    pub(super) fn ungranted(&mut self, id: PodId, quota: QuotaId) -> Option<Charge> {
        let admitted = self.admissions.by_pod.get(&id)?;
        let (granted, held) = (admitted.granted.clone(), admitted.held.get(&quota)?.clone());
        let namespace = self.pods.get(id)?.namespace;
        let granted = self.parts_of(id, namespace, &granted)?;
        Some(granted.get(&quota).map_or_else(|| held.clone(), |granted| held.above(granted)))
    }
}

/// What `parts` have more than `held`.
fn above(parts: &Parts, held: Option<&Parts>) -> Vec<(QuotaId, Charge)> {
    let nothing = Charge::default();
    let more = parts.iter().map(|(quota, charge)| {
        (*quota, charge.above(held.and_then(|held| held.get(quota)).unwrap_or(&nothing)))
    });
    more.filter(|(_, charge)| !charge.is_empty()).collect()
}
