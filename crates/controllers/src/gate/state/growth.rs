//! Judges updates of pods without gates, and charges those that take more (see [`admission`](crate::gate::admission)).

use std::sync::Arc;

use sluice_engine::{Charge, Patience, PodId, QuotaId, QuotaSet, Reason};
use sluice_index::{Gates, NamespaceId, PodFacts, Version};

use super::State;
use crate::gate::admission::{Asked, CHANGED, Change, Judgement, UNSEEN};
use crate::gate::config::Moment;
use crate::gate::parts::admissions::{Hold, Parts, Wanted};
use crate::gate::stage::Stage;

const ALLOWED: Asked = Asked::Judged(Judgement::Allowed);

impl State {
    /// Judges an update of a pod, and charges it if it takes more.
    pub fn ask(&mut self, change: &Change, now: Moment) -> Asked {
        self.judge(change, now).unwrap_or_else(Asked::Judged)
    }

    fn judge(&mut self, change: &Change, now: Moment) -> Result<Asked, Judgement> {
        self.judge_growth_of_fixed(change)?;
        let Some((id, namespace)) = self.concerns(change)? else { return Ok(ALLOWED) };
        if self
            .pods
            .get(id)
            .is_some_and(|record| self.is_exempt(record) || self.payer(record).owner.is_some())
        {
            return Ok(ALLOWED);
        }
        let after = &change.after;
        if let Some(invalid) = self.invalid_quota(namespace).filter(|_| self.takes_more(id, after)) {
            return Err(Judgement::Refused(self.invalid_message(invalid)));
        }
        let wanted = self.admissions.wanted(id).cloned().unwrap_or_default().and(after);
        let Some(parts) = self.parts_of(id, namespace, &wanted) else { return Err(UNSEEN) };
        let held = self.admissions.held(id);
        let more = above(&parts, held);
        if let Some(field) = after.unreadable.as_ref().filter(|_| !more.is_empty()) {
            return Err(Judgement::Refused(format!("cannot be charged: {field}")));
        }
        if more.iter().any(|(quota, _)| self.queue.rests(*quota)) {
            return Err(CHANGED);
        }
        let patience = Patience { now_ms: now.mono_ms, limit_ms: self.config.patience_ms };
        if change.dry_run {
            let fits = self.queue.can_grow(&more, patience);
            return fits.map(|()| ALLOWED).map_err(|reason| self.refusal(namespace, &reason));
        }
        if more.is_empty() && held.is_none() {
            return Ok(ALLOWED);
        }
        let grown = self.queue.grow(namespace.share(), &more, patience);
        grown.map_err(|reason| self.refusal(namespace, &reason))?;
        let until_ms = now.mono_ms + self.config.admission_life_ms;
        let share = namespace.share();
        Ok(self.hold(id, Hold { share, version: change.before.version, until_ms, wanted, parts }, &more))
    }

    /// The pod that is to be charged and its namespace; `None` if the update is not this controller's concern.
    fn concerns(&self, change: &Change) -> Result<Option<(PodId, NamespaceId)>, Judgement> {
        if !self.leading {
            return Err(Judgement::Undecided("this process does not lead"));
        }
        let Change { before, after, .. } = change;
        if before.gates == Gates::Ours || after.gates != Gates::None {
            // It is charged when it is released, and a release of the pod as it was fails when it has changed.
            return Ok(None);
        }
        if before.version == Version::default() {
            return Err(Judgement::Undecided("the pod has no version"));
        }
        let Some(namespace) = self.namespaces.id(&before.namespace) else { return Err(UNSEEN) };
        match self.namespaces.is_targeted(namespace) {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => return Err(UNSEEN),
        }
        let known = self.pods.find(namespace, &before.name);
        let known = known.and_then(|id| Some((id, self.pods.get(id)?)));
        let Some((id, pod)) = known.filter(|(_, pod)| pod.uid == before.uid) else { return Err(UNSEEN) };
        if before.version.is_older_than(pod.version) {
            // Such a request cannot commit: the API server will ask again.
            return Ok(None);
        }
        if pod.version.is_older_than(before.version) {
            return Err(UNSEEN);
        }
        if self.reclassification.is_paused(namespace) || !self.machines.are_appraised() {
            return Err(CHANGED);
        }
        Ok(Some((id, namespace)))
    }

    /// What was claimed is held, and recorded before it is answered.
    fn hold(&mut self, id: PodId, hold: Hold, more: &[(QuotaId, Charge)]) -> Asked {
        let serial = self.stages.next_serial();
        if !self.admissions.hold(id, hold, serial, more.len()) {
            return ALLOWED;
        }
        for (quota, _) in more {
            self.writes.charge(*quota, id, serial);
        }
        Asked::Recording(serial)
    }

    /// What the pod is counted with, and in which quotas; nothing of one that gates of others hold.
    fn counted_of(&self, id: PodId) -> Option<(Arc<Charge>, Arc<QuotaSet>)> {
        match self.stages.get(id) {
            Stage::Counted { charge, quotas } | Stage::Assumed { charge, quotas, .. } => {
                Some((Arc::clone(charge), Arc::clone(quotas)))
            }
            Stage::Foreign => Some((Arc::default(), Arc::default())),
            _ => None,
        }
    }

    /// Whether it would take more of any resource than now, or come under other scopes.
    fn takes_more(&self, id: PodId, after: &PodFacts) -> bool {
        let scopes = self.pods.get(id).map(|pod| &*pod.scope_facts);
        let counted = self.counted_of(id).map(|(charge, _)| charge).unwrap_or_default();
        scopes != Some(&after.scope_facts) || !after.charge.above(&counted).is_empty()
    }

    /// What the pod may come to take beside what it is counted with; `None` if it is not counted.
    pub(super) fn parts_of(&mut self, id: PodId, namespace: NamespaceId, wanted: &Wanted) -> Option<Parts> {
        let (counted, counted_in) = self.counted_of(id)?;
        let charge = &wanted.charge;
        let mut parts = Parts::new();
        for facts in &wanted.facts {
            for quota in self.matching_quotas(namespace, facts).iter() {
                let Some(ledger) = self.queue.ledger(*quota) else { continue };
                let more = if counted_in.contains(quota) {
                    charge.above(&counted)
                } else {
                    charge.above(&Charge::default())
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

    pub(super) fn refusal(&self, namespace: NamespaceId, reason: &Reason) -> Judgement {
        let text = self.text_about_lack(reason, namespace.share());
        text.map_or(CHANGED, |(_, message)| Judgement::Refused(message))
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
