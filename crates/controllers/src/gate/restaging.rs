//! Pods that have to find their stage anew because their quotas, or their namespace, have changed.
//!
//! There may be very many, so it is done for some at a time. A quota that counts other things than before is another one to
//! the queue, with a ledger of its own, empty at first: what pods claimed of the old one has gone with that, and what they
//! claim of the new one is right as soon as each of them has had its turn. Until then the namespace rests: no pod of it is
//! decided on, none is released, no status is written, no growth is admitted. What is seen meanwhile is taken as always.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use sluice_engine::status::enforced;
use sluice_engine::{Charge, Claim, CompiledQuota, Ledger, PodId, QuotaId};
use sluice_index::NamespaceId;

use super::config::Moment;
use super::stage::Stage;
use super::state::{State, Writing};

/// Namespaces that rest.
#[derive(Debug, Default)]
pub(super) struct Restaging {
    resting: BTreeMap<NamespaceId, Resting>,
    /// The one whose pods had the last turn.
    last: Option<NamespaceId>,
}

#[derive(Debug, Default)]
struct Resting {
    /// Pods that are still to have their turn.
    pods: Vec<PodId>,
    /// Pods that may go, but not now.
    to_release: Vec<PodId>,
    /// Quotas that are no more. Their accounts are kept until no pod has a claim on them.
    closing: Vec<QuotaId>,
    /// Quotas to [honour](State::honour_recorded) when their sums are complete.
    to_honour: BTreeSet<QuotaId>,
}

impl Restaging {
    pub fn is_over(&self) -> bool {
        self.resting.is_empty()
    }

    pub fn rests(&self, namespace: NamespaceId) -> bool {
        self.resting.contains_key(&namespace)
    }

    /// Whether the pod is still to have its turn.
    pub fn awaits(&self, namespace: NamespaceId, id: PodId) -> bool {
        self.resting.get(&namespace).is_some_and(|resting| resting.pods.contains(&id))
    }

    /// Whether the pod has to wait with its release.
    pub fn holds_back(&mut self, namespace: NamespaceId, id: PodId) -> bool {
        let resting = self.resting.get_mut(&namespace);
        resting.map(|resting| resting.to_release.push(id)).is_some()
    }

    /// Whether the quota is honoured later, when its sums are complete.
    pub fn honours_later(&mut self, namespace: NamespaceId, id: QuotaId) -> bool {
        let resting = self.resting.get_mut(&namespace);
        resting.map(|resting| resting.to_honour.insert(id)).is_some()
    }

    /// The namespace whose turn it is, and its next pods.
    fn next(&mut self, most: usize) -> Option<(NamespaceId, Vec<PodId>)> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.resting.range((after, Bound::Unbounded)).next();
        let namespace = *next.or_else(|| self.resting.first_key_value())?.0;
        self.last = Some(namespace);
        let pods = &mut self.resting.get_mut(&namespace)?.pods;
        Some((namespace, pods.split_off(pods.len().saturating_sub(most))))
    }
}

impl State {
    /// All pods of a namespace have to find their stage anew.
    pub(super) fn restage_all(&mut self, namespace: NamespaceId, now: Moment) {
        let pods = self.namespaces.get(namespace).map(|known| known.pods().to_vec()).unwrap_or_default();
        if let Some(resting) = self.restaging.resting.get_mut(&namespace) {
            resting.pods.clear();
        }
        self.restage_later(namespace, pods);
        self.go_on_restaging(now);
    }

    /// These pods of a namespace have to find their stage anew.
    pub(super) fn restage_later(&mut self, namespace: NamespaceId, pods: Vec<PodId>) {
        let admitted = self.suspend_admissions(namespace);
        let resting = self.restaging.resting.entry(namespace).or_default();
        resting.pods.extend(pods.into_iter().chain(admitted));
        let Some(known) = self.namespaces.get(namespace) else { return };
        for quota in known.quotas() {
            self.queue.pause(*quota);
        }
        if resting.pods.len() > known.pods().len() {
            // Some have to for several reasons.
            resting.pods.sort_unstable();
            resting.pods.dedup();
        }
    }

    /// The next pods have their turn. Namespaces take turns, so that one whose quotas are edited all the time keeps no other
    /// at rest.
    pub(super) fn go_on_restaging(&mut self, now: Moment) {
        let mut most = self.config.restaged_pods;
        while most > 0
            && let Some((namespace, pods)) = self.restaging.next(most)
        {
            most -= pods.len();
            for id in pods {
                self.restage_anew(id, namespace, now);
            }
            if self.restaging.resting.get(&namespace).is_some_and(|resting| resting.pods.is_empty()) {
                self.end_rest(namespace, now);
            }
        }
    }

    fn restage_anew(&mut self, id: PodId, namespace: NamespaceId, now: Moment) {
        // The handle may be another pod's by now.
        let Some(record) = self.pods.get(id).filter(|record| record.namespace == namespace).cloned() else {
            return;
        };
        let on_its_way = match self.stage(id) {
            Stage::Assumed { charge, serial, awaited: 0, .. } if self.may_be_released(id, now) => {
                Some((Arc::clone(charge), *serial))
            }
            _ => None,
        };
        self.lift(id, &record);
        match on_its_way {
            // Its gate is being removed and cannot be called back: it stays charged, to the quotas of now.
            Some((charge, serial)) => self.assume_on_its_way(id, charge, serial),
            None => self.restage(id, now),
        }
        self.hold_anew(id);
    }

    fn end_rest(&mut self, namespace: NamespaceId, now: Moment) {
        let Some(resting) = self.restaging.resting.remove(&namespace) else { return };
        for quota in resting.closing {
            self.queue.close(quota);
            self.dirty.remove(&quota);
        }
        self.to_release.extend(resting.to_release);
        self.to_check.insert(namespace);
        for quota in resting.to_honour {
            self.honour_recorded(quota, now);
        }
        let quotas = self.namespaces.get(namespace).map(|known| known.quotas().to_vec()).unwrap_or_default();
        for quota in quotas {
            self.queue.resume(quota);
            self.dirty.insert(quota);
        }
    }

    /// The quota is another one to the queue, of which nothing is claimed yet.
    pub(super) fn renew_quota(&mut self, old: QuotaId) -> QuotaId {
        let namespace = self.quotas.get(old).map(|quota| quota.namespace);
        let (Some(namespace), Some(new)) = (namespace, self.quotas.renew(old, &mut self.namespaces)) else {
            return old;
        };
        self.open_ledger(new);
        if self.queue.is_frozen(old) {
            self.queue.freeze(new);
        }
        let resting = self.restaging.resting.entry(namespace).or_default();
        let is_honoured = |writing: &Writing| writing.honoured_until_ms.is_some();
        if resting.to_honour.remove(&old)
            || self.unseen.has(old)
            || self.writings.get(&old).is_some_and(is_honoured)
        {
            resting.to_honour.insert(new);
        }
        if self.unseen.has(old) {
            self.end_honouring(new);
        }
        if let Some(mut writing) = self.writings.remove(&old) {
            // The answer to a write that is under way speaks of the old one.
            (writing.in_flight, writing.pending) = (None, Vec::new());
            let spaced = writing.last_ms.take().map_or(0, |last| last + self.config.charge_spacing_ms);
            writing.not_before_ms = writing.not_before_ms.max(spaced);
            self.quota_later.extend(writing.honoured_until_ms.map(|until| (until, new)));
            self.writings.insert(new, writing);
        }
        self.drop_quota(old, namespace);
        new
    }

    pub(super) fn open_ledger(&mut self, id: QuotaId) {
        let limits = self.quotas.get(id).and_then(|quota| quota.compiled.as_ref().ok());
        let ledger = limits.map(|limits| Ledger::new(enforced(limits))).unwrap_or_default();
        self.queue.open(id, ledger);
    }

    /// The quota is no more. [`Self::restage_all`] has to follow.
    pub(super) fn drop_quota(&mut self, id: QuotaId, namespace: NamespaceId) {
        self.queue.pause(id);
        self.restaging.resting.entry(namespace).or_default().closing.push(id);
        self.quota_lists.retain(|list| !list.contains(&id));
        self.writings.remove(&id);
        self.unseen.forget(id);
    }

    /// What is to be summed in a quota whose sums are complete.
    pub(super) fn summed(&self, id: QuotaId) -> Option<&CompiledQuota> {
        let quota = self.quotas.get(id).filter(|quota| !self.restaging.rests(quota.namespace))?;
        quota.compiled.as_deref().ok()
    }

    /// Whether the gate is being removed, or may be removed yet by a request that was not answered.
    pub(super) fn may_be_released(&self, id: PodId, now: Moment) -> bool {
        self.releasing.contains(&id)
            || self.troubles.get(&id).is_some_and(|trouble| trouble.is_uncertain(now.mono_ms))
    }

    fn assume_on_its_way(&mut self, id: PodId, charge: Arc<Charge>, serial: u64) {
        let Some(record) = self.pods.get(id) else { return };
        let (namespace, facts) = (record.namespace, Arc::clone(&record.scope_facts));
        let quotas = self.matching_quotas(namespace, &facts);
        self.queue.apply(Claim::Assumed, &quotas, &charge);
        self.dirty.extend(quotas.iter());
        self.set_stage(id, Stage::Assumed { charge, quotas, awaited: 0, serial });
    }
}
