//! Pods that have to find their stage anew because their quotas, or their namespace, have changed.
//!
//! There may be very many, so it is done for some at a time. A quota that counts other things than before is another one to
//! the book, with a ledger of its own, empty at first: what pods claimed of the old one has gone with that, and what they
//! claim of the new one is right as soon as each of them has had its turn. Until then the namespace rests: no pod of it is
//! decided on, none is released, no charge is recorded, no growth is admitted. What is seen meanwhile is taken as always.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::status::enforced;
use sluice_engine::{Charge, Claim, CompiledQuota, Ledger, PodId, QuotaId};
use sluice_index::NamespaceId;

use super::config::Moment;
use super::stage::Stage;
use super::state::State;

/// Namespaces that rest.
#[derive(Debug, Default)]
pub(super) struct Restaging(BTreeMap<NamespaceId, Resting>);

#[derive(Debug, Default)]
struct Resting {
    /// Pods that are still to have their turn.
    pods: Vec<PodId>,
    /// Pods that may go, but not now.
    to_release: Vec<PodId>,
}

impl Restaging {
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn rests(&self, namespace: NamespaceId) -> bool {
        self.0.contains_key(&namespace)
    }

    /// Whether the pod has to wait with its release.
    pub fn holds_back(&mut self, namespace: NamespaceId, id: PodId) -> bool {
        let resting = self.0.get_mut(&namespace);
        resting.map(|resting| resting.to_release.push(id)).is_some()
    }
}

impl State {
    /// All pods of a namespace have to find their stage anew.
    pub(super) fn restage_all(&mut self, namespace: NamespaceId, now: Moment) {
        let pods = self.namespaces.get(namespace).map(|known| known.pods().to_vec()).unwrap_or_default();
        if let Some(resting) = self.restaging.0.get_mut(&namespace) {
            resting.pods.clear();
        }
        self.restage_later(namespace, pods);
        self.go_on_restaging(now);
    }

    /// These pods of a namespace have to find their stage anew.
    pub(super) fn restage_later(&mut self, namespace: NamespaceId, pods: Vec<PodId>) {
        for quota in self.namespaces.get(namespace).map_or(&[][..], |known| known.quotas()) {
            self.book.pause(*quota);
        }
        let admitted = self.suspend_admissions(namespace);
        let resting = self.restaging.0.entry(namespace).or_default();
        resting.pods.extend(pods.into_iter().chain(admitted));
    }

    /// The next pods have their turn.
    pub(super) fn go_on_restaging(&mut self, now: Moment) {
        let mut most = self.config.restaged_pods;
        while most > 0
            && let Some(mut first) = self.restaging.0.first_entry()
        {
            let (namespace, pods) = (*first.key(), &mut first.get_mut().pods);
            let turn = pods.split_off(pods.len().saturating_sub(most));
            most -= turn.len();
            for id in turn {
                self.restage_anew(id, namespace, now);
            }
            let is_over = self.restaging.0.get(&namespace).is_none_or(|resting| resting.pods.is_empty());
            if is_over {
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
        let Some(resting) = self.restaging.0.remove(&namespace) else { return };
        self.to_release.extend(resting.to_release);
        self.to_check.insert(namespace);
        let quotas = self.namespaces.get(namespace).map(|known| known.quotas().to_vec()).unwrap_or_default();
        for quota in quotas {
            self.honour_again(quota, now);
            self.book.resume(quota);
            self.dirty.insert(quota);
        }
    }

    /// The quota is another one to the book, of which nothing is claimed yet.
    pub(super) fn renew_quota(&mut self, old: QuotaId) -> QuotaId {
        let Some(new) = self.quotas.renew(old, &mut self.namespaces) else { return old };
        self.open_ledger(new);
        if self.book.is_frozen(old) {
            self.book.freeze(new);
        }
        self.unseen.rename(old, new);
        if let Some(mut writing) = self.writings.remove(&old) {
            // The answer to a write that is under way speaks of the old one.
            (writing.in_flight, writing.pending) = (None, Vec::new());
            let spaced = writing.last_ms.take().map_or(0, |last| last + self.config.charge_spacing_ms);
            writing.not_before_ms = writing.not_before_ms.max(spaced);
            self.quota_later.extend(writing.honoured_until_ms.map(|until| (until, new)));
            self.writings.insert(new, writing);
        }
        self.close_quota(old);
        new
    }

    pub(super) fn open_ledger(&mut self, id: QuotaId) {
        let limits = self.quotas.get(id).and_then(|quota| quota.compiled.as_ref().ok());
        let ledger = limits.map(|limits| Ledger::new(enforced(limits))).unwrap_or_default();
        self.book.open(id, ledger);
    }

    pub(super) fn close_quota(&mut self, id: QuotaId) {
        self.book.close(id);
        self.quota_lists.retain(|list| !list.contains(&id));
        self.writings.remove(&id);
        self.unseen.forget(id);
        self.dirty.remove(&id);
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
        self.book.apply(Claim::Assumed, &quotas, &charge);
        self.dirty.extend(quotas.iter());
        self.set_stage(id, Stage::Assumed { charge, quotas, awaited: 0, serial });
    }
}
