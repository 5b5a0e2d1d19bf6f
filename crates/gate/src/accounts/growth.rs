//! Judges updates of pods without gates, and charges those that take more (see [`admission`](crate::admission)).

use std::borrow::Cow;
use std::sync::Arc;

use sluice_engine::{Charge, Patience, PodId, QuotaId, QuotaSet, Reason};
use sluice_index::{Gates, NamespaceId, PodFacts, Version};

use super::Accounts;
use crate::accounts::parts::admissions::{Parts, Wanted};
use crate::accounts::parts::growth::Want;
use crate::admission::{Asked, CHANGED, Change, Judgement, UNEVALUATED, UNSEEN};
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::evaluators::{Price, Priced};
use crate::orders::Order;
use crate::stage::Stage;

const ALLOWED: Asked = Asked::Judged(Judgement::Allowed);

impl Accounts {
    pub fn judge(&mut self, cluster: &Cluster, change: &Change, now: Moment) -> Result<Asked, Judgement> {
        self.judge_growth_of_fixed(cluster, change)?;
        let Some((id, namespace)) = self.concerns(cluster, change)? else { return Ok(ALLOWED) };
        if cluster.pods.get(id).is_some_and(|record| {
            self.is_exempt(cluster, record) || self.payer(cluster, id, record).owner.is_some()
        }) {
            return Ok(ALLOWED);
        }
        let priced = self.priced(cluster, id, change)?;
        let after = priced.as_ref().unwrap_or(&change.after);
        let has_pause = self.has_pause(namespace);
        let invalid =
            cluster.invalid_quota(namespace).filter(|_| !has_pause && self.takes_more(cluster, id, after));
        if let Some(invalid) = invalid {
            return Err(Judgement::Refused(cluster.invalid_message(invalid)));
        }
        let wanted = self.pod_growth.wanted(&id).cloned().unwrap_or_default().and(after);
        let Some(parts) = self.parts_of(cluster, id, namespace, &wanted) else { return Err(UNSEEN) };
        let held = self.admissions.held(id);
        let more = above(&parts, held);
        if let Some(field) = after.unreadable.as_ref().filter(|_| !more.is_empty()) {
            return Err(Judgement::Refused(format!("cannot be charged: {field}")));
        }
        if more.iter().any(|(quota, _)| self.stages.queue().rests(*quota)) {
            return Err(CHANGED);
        }
        let patience = Patience { now_ms: now.mono_ms, limit_ms: cluster.config.patience_ms };
        if change.dry_run {
            let fits = if has_pause { Ok(()) } else { self.stages.queue().can_grow(&more, patience) };
            return fits.map(|()| ALLOWED).map_err(|reason| self.refusal(cluster, namespace, &reason));
        }
        if more.is_empty() && held.is_none() {
            return Ok(ALLOWED);
        }
        let queue = self.stages.queue_mut();
        if has_pause {
            queue.let_grow(namespace.share(), &more);
        } else {
            let grown = queue.grow(namespace.share(), &more, patience);
            grown.map_err(|reason| self.refusal(cluster, namespace, &reason))?;
        }
        let until_ms = now.mono_ms + cluster.config.admission_life_ms;
        let want = Want { version: change.before.version, until_ms, wanted, known: Wanted::default() };
        self.admissions.hold(id, namespace.share(), parts);
        Ok(self.want(id, want, &more))
    }

    /// The pod as it is to be with what evaluators say of it, where they say what the pod takes.
    pub fn priced(
        &self,
        cluster: &Cluster,
        id: PodId,
        change: &Change,
    ) -> Result<Option<PodFacts>, Judgement> {
        let is_asked = cluster.pods.get(id).is_some_and(|record| self.is_asked_about(cluster, id, record));
        if !is_asked {
            return Ok(None);
        }
        let is_of_now = |priced: &&Priced| self.is_of_now(cluster, &change.after.namespace, priced);
        match change.price.as_ref().filter(is_of_now).map(|priced| &priced.price) {
            Some(Price::Charge(charge)) => {
                Ok(Some(PodFacts { charge: Charge::clone(charge), ..change.after.clone() }))
            }
            Some(Price::NoMatch) => Ok(None),
            None => Err(change.unpriced.clone().unwrap_or(UNEVALUATED)),
        }
    }

    /// The pod that is to be charged and its namespace; `None` if the update is not this controller's concern.
    fn concerns(
        &self,
        cluster: &Cluster,
        change: &Change,
    ) -> Result<Option<(PodId, NamespaceId)>, Judgement> {
        let Change { before, after, .. } = change;
        // A held pod is charged when it is released, and the release of the pod as it was fails when the pod has changed.
        let is_held = before.gates == Gates::Ours || after.gates != Gates::None;
        self.concerns_version(cluster, !is_held, &before.namespace, before.version, |namespace| {
            let id = cluster.pods.find(namespace, &before.name)?;
            cluster.pods.get(id).filter(|pod| pod.uid == before.uid).map(|pod| (id, pod.version))
        })
    }

    /// The object that is to be charged and its namespace; `None` if an update of the object in this version is not this
    /// controller's concern. `is_charged`: such objects are charged. `find` returns the object and its known version.
    pub(super) fn concerns_version<K>(
        &self,
        cluster: &Cluster,
        is_charged: bool,
        namespace: &str,
        before: Version,
        find: impl FnOnce(NamespaceId) -> Option<(K, Version)>,
    ) -> Result<Option<(K, NamespaceId)>, Judgement> {
        if !self.leading || self.is_resigning {
            return Err(Judgement::Undecided(Cow::Borrowed("this process does not lead")));
        }
        if !is_charged {
            return Ok(None);
        }
        if before == Version::default() {
            return Err(Judgement::Undecided(Cow::Borrowed("the object has no version")));
        }
        let Some(namespace) = cluster.namespaces.id(namespace) else { return Err(UNSEEN) };
        match cluster.namespaces.is_targeted(namespace) {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => return Err(UNSEEN),
        }
        let Some((key, known)) = find(namespace) else { return Err(UNSEEN) };
        if before.is_older_than(known) {
            // A request about an older version cannot commit: the API server will ask again.
            return Ok(None);
        }
        if known.is_older_than(before) {
            return Err(UNSEEN);
        }
        if self.reclassification.is_paused(namespace) || !self.repricing.are_appraised() {
            return Err(CHANGED);
        }
        Ok(Some((key, namespace)))
    }

    /// What was claimed is recorded before it is answered.
    pub(super) fn want(&mut self, id: PodId, want: Want<Wanted>, more: &[(QuotaId, Charge)]) -> Asked {
        let serial = self.stages.next_serial();
        if !self.pod_growth.want(&id, want, serial, more.len()) {
            return ALLOWED;
        }
        for (quota, _) in more {
            self.orders.give(Order::Record(*quota, (id, serial)));
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
    fn takes_more(&self, cluster: &Cluster, id: PodId, after: &PodFacts) -> bool {
        let scopes = cluster.pods.get(id).map(|pod| &*pod.scope_facts);
        let counted = self.counted_of(id).map(|(charge, _)| charge).unwrap_or_default();
        scopes != Some(&after.scope_facts) || !after.charge.above(&counted).is_empty()
    }

    /// What the pod may come to take beside what it is counted with; `None` if it is not counted.
    pub(super) fn parts_of(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        namespace: NamespaceId,
        wanted: &Wanted,
    ) -> Option<Parts> {
        let (counted, counted_in) = self.counted_of(id)?;
        let charge = &wanted.charge;
        let mut parts = Parts::new();
        for facts in &wanted.facts {
            for quota in self.matching_quotas(cluster, namespace, facts).iter() {
                let Some(ledger) = self.stages.queue().ledger(*quota) else { continue };
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

    pub fn refusal(&self, cluster: &Cluster, namespace: NamespaceId, reason: &Reason) -> Judgement {
        let text = self.text_about_lack(cluster, reason, namespace.share());
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
