//! What is seen changes the state.

use std::sync::Arc;

use sluice_engine::status::enforced;
use sluice_engine::{Claim, PodId, QuotaId};
use sluice_index::{
    Gates, NamespaceId, NamespaceWire, PodChange as Change, PodFacts, PodRecord, PodWire, QuotaChange,
    QuotaWire, Targeting,
};

use super::admitted::CHANGED;
use super::config::Moment;
use super::stage::{Stage, Stuck};
use super::state::State;

impl State {
    /// A list of pods begins.
    pub fn begin_pods(&mut self) {
        self.pods.begin_list();
    }

    /// The list of pods is complete.
    pub fn end_pods(&mut self) {
        for id in self.pods.end_list() {
            self.forget_pod(id);
        }
    }

    /// A pod was seen.
    pub fn see_pod(&mut self, wire: &PodWire, now: Moment) {
        let facts = PodFacts::read(wire, self.config.gate, self.config.rules, now.unix_s());
        let admitted = (!self.admissions.is_empty()).then(|| (facts.namespace.clone(), facts.name.clone()));
        match self.pods.upsert(facts, &mut self.namespaces) {
            Change::Added(id) => self.restage(id, now),
            Change::Changed(id) => self.reconsider_pod(id, now),
            Change::Replaced(old, id) => {
                // The handle may be the old one's: everything about the old one has to go first.
                self.drop_pod(id, &old);
                self.restage(id, now);
            }
            Change::Same => {}
        }
        let find =
            |(namespace, name): (Box<str>, Box<str>)| self.pods.find(self.namespaces.id(&namespace)?, &name);
        if let Some(id) = admitted.and_then(find) {
            self.heed_admitted(id);
        }
    }

    /// A pod is gone.
    pub fn lose_pod(&mut self, wire: &PodWire) {
        let meta = &wire.metadata;
        let id = self
            .namespaces
            .id(meta.namespace.as_deref().unwrap_or_default())
            .and_then(|namespace| self.pods.find(namespace, meta.name.as_deref().unwrap_or_default()));
        let Some(id) = id else { return };
        let uid = sluice_engine::Uid::parse(meta.uid.as_deref().unwrap_or_default());
        if self.pods.get(id).is_some_and(|record| record.uid == uid) {
            self.forget_pod(id);
        }
    }

    pub(super) fn forget_pod(&mut self, id: PodId) {
        // Its claims are taken back while its namespace is still known.
        let Some(record) = self.pods.get(id).cloned() else { return };
        self.drop_pod(id, &record);
        self.pods.remove(id, &mut self.namespaces);
    }

    fn drop_pod(&mut self, id: PodId, record: &PodRecord) {
        self.unstage(id, record);
        self.end_admission(id, &CHANGED);
        self.troubles.remove(&id);
        self.telling.forget(id);
        self.seen_ms.remove(&id);
        self.releasing.remove(&id);
    }

    fn reconsider_pod(&mut self, id: PodId, now: Moment) {
        let Some(record) = self.pods.get(id).cloned() else { return };
        match (self.stage(id), record.gates) {
            // Our release, or one that is not answered yet, has arrived.
            (Stage::Assumed { charge, quotas, .. }, Gates::None) => {
                let (charge, quotas) = (charge.clone(), quotas.clone());
                self.queue.confirm(&quotas, &charge);
                self.note_release(id, now);
                let is_same = charge == record.charge;
                self.set_stage(id, Stage::Counted { charge, quotas });
                // What it takes, and of what, may have changed together with the gate.
                if !self.is_counted_as(id, &record) {
                    if is_same {
                        self.lift(id, &record);
                    } else {
                        self.unstage(id, &record);
                    }
                    self.restage(id, now);
                }
            }
            (Stage::Free { .. }, Gates::None) => {
                self.note_release(id, now);
                self.unstage(id, &record);
                self.restage(id, now);
            }
            // Its gate is being removed: the answer will say whether it still was the pod decided on.
            (Stage::Assumed { .. }, Gates::Ours) if self.releasing.contains(&id) => {}
            // Another client released it: perhaps a predecessor whose charge is being honoured.
            (Stage::Waiting(_) | Stage::Stuck(_), Gates::None) => {
                // Or this one, before there was a quota.
                let is_ours = self.may_be_released(id, now);
                self.unstage(id, &record);
                let charge = Arc::clone(&record.charge);
                let quotas = self.matching_quotas(record.namespace, &record.scope_facts);
                if !is_ours {
                    self.heed_foreign_release(&record, &quotas, now);
                }
                self.telling.forget(id);
                if record.unreadable.is_none() {
                    self.queue.arrive(&quotas, &charge);
                } else {
                    // It would be taken for everything that is in flight.
                    self.queue.apply(Claim::Counted, &quotas, &charge);
                }
                self.dirty.extend(quotas.iter());
                self.seen_ms.remove(&id);
                self.set_stage(id, Stage::Counted { charge, quotas });
            }
            _ => {
                self.unstage(id, &record);
                self.restage(id, now);
            }
        }
    }

    fn is_counted_as(&mut self, id: PodId, record: &PodRecord) -> bool {
        let matching = self.matching_quotas(record.namespace, &record.scope_facts);
        matches!(self.stage(id), Stage::Counted { charge, quotas } if *charge == record.charge && *quotas == matching)
    }

    fn note_release(&mut self, id: PodId, now: Moment) {
        self.releasing.remove(&id);
        self.troubles.remove(&id);
        self.telling.forget(id);
        self.stats.released += 1;
        if let Some(seen) = self.seen_ms.remove(&id) {
            let waited = now.mono_ms.saturating_sub(seen);
            #[allow(clippy::cast_precision_loss)]
            self.stats.waits_s.push(waited as f64 / 1000.0);
        }
    }

    /// A list of namespaces begins.
    pub fn begin_namespaces(&mut self) {
        self.namespaces.begin_list();
    }

    /// The list of namespaces is complete.
    pub fn end_namespaces(&mut self, now: Moment) {
        for id in self.namespaces.end_list() {
            self.restage_gated(id, now);
        }
    }

    /// A namespace was seen.
    pub fn see_namespace(&mut self, wire: &NamespaceWire, now: Moment) {
        let meta = &wire.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let terminating = meta.deletion_timestamp.is_some();
        let labels = meta.labels.clone().unwrap_or_default();
        if let Some(id) = self.namespaces.upsert(name, labels, terminating) {
            self.restage_gated(id, now);
        }
    }

    /// A namespace is gone.
    pub fn lose_namespace(&mut self, wire: &NamespaceWire, now: Moment) {
        if let Some(id) = self.namespaces.remove(wire.metadata.name.as_deref().unwrap_or_default()) {
            self.restage_gated(id, now);
        }
    }

    /// Other namespaces are targeted from now on. Returns how many waiting pods may go because theirs is not.
    pub fn retarget(&mut self, targeting: Targeting, now: Moment) -> usize {
        let mut released = 0;
        for id in self.namespaces.retarget(targeting) {
            let gated = self.gated(id);
            if self.namespaces.is_targeted(id) == Some(false) {
                let waits = |pod: &&PodId| matches!(self.stage(**pod), Stage::Waiting(_) | Stage::Stuck(_));
                released += gated.iter().filter(waits).count();
            }
            if !gated.is_empty() {
                self.restage_later(id, gated);
            }
        }
        self.go_on_restaging(now);
        released
    }

    /// Whether a namespace is targeted matters to its gated pods only.
    fn restage_gated(&mut self, namespace: NamespaceId, now: Moment) {
        let gated = self.gated(namespace);
        if !gated.is_empty() {
            self.restage_later(namespace, gated);
            self.go_on_restaging(now);
        }
    }

    fn gated(&self, namespace: NamespaceId) -> Vec<PodId> {
        let is_gated = |id: &PodId| {
            matches!(self.stage(*id), Stage::Waiting(_) | Stage::Stuck(_) | Stage::Free { .. })
                && !self.releasing.contains(id)
        };
        let pods = self.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
        pods.iter().copied().filter(is_gated).collect()
    }

    /// A list of quotas begins.
    pub fn begin_quotas(&mut self) {
        self.quotas.begin_list();
    }

    /// The list of quotas is complete.
    pub fn end_quotas(&mut self, now: Moment) {
        for id in self.quotas.end_list() {
            self.forget_quota(id, now);
        }
        self.quotas_are_listed();
    }

    /// A quota was seen.
    pub fn see_quota(&mut self, wire: &QuotaWire, now: Moment) {
        if let Some(old) = self.quotas.replaced_by(wire, &self.namespaces) {
            self.forget_quota(old, now);
        }
        let before = self.recorded_charges(wire);
        match self.quotas.upsert(wire, &mut self.namespaces) {
            QuotaChange::Added(id) => {
                self.open_ledger(id);
                self.restage_namespace_of(id, now);
                self.heed_charge(id, before, now);
            }
            QuotaChange::Meaning(id) => {
                let id = self.reopen(id, now);
                self.heed_charge(id, before, now);
            }
            QuotaChange::Limits(id) => {
                let id = self.relimit(id, now);
                self.heed_charge(id, before, now);
            }
            QuotaChange::Status(id) => {
                self.heed_charge(id, before, now);
                self.heed_overwriting(id, wire, now);
                self.dirty.insert(id);
            }
            QuotaChange::Same => {}
        }
    }

    /// The `status.charges` that was known before this sighting.
    fn recorded_charges(&self, wire: &QuotaWire) -> i64 {
        let meta = &wire.metadata;
        self.namespaces
            .id(meta.namespace.as_deref().unwrap_or_default())
            .and_then(|namespace| self.quotas.find(namespace, meta.name.as_deref().unwrap_or_default()))
            .and_then(|id| self.quotas.get(id))
            .map_or(0, |quota| quota.recorded.charges)
    }

    /// A quota is gone.
    pub fn lose_quota(&mut self, wire: &QuotaWire, now: Moment) {
        let meta = &wire.metadata;
        let id = self
            .namespaces
            .id(meta.namespace.as_deref().unwrap_or_default())
            .and_then(|namespace| self.quotas.find(namespace, meta.name.as_deref().unwrap_or_default()));
        let Some(id) = id else { return };
        let uid = sluice_engine::Uid::parse(meta.uid.as_deref().unwrap_or_default());
        if self.quotas.get(id).is_some_and(|record| record.uid == uid) {
            self.forget_quota(id, now);
        }
    }

    pub(super) fn forget_quota(&mut self, id: QuotaId, now: Moment) {
        let Some(namespace) = self.quotas.get(id).map(|record| record.namespace) else { return };
        self.quotas.remove(id, &mut self.namespaces);
        self.drop_quota(id, namespace);
        self.restage_all(namespace, now);
    }

    /// Returns the quota's handle.
    fn relimit(&mut self, id: QuotaId, now: Moment) -> QuotaId {
        let limits = self.quotas.get(id).and_then(|quota| quota.compiled.as_ref().ok()).cloned();
        if !limits.is_some_and(|limits| self.queue.replace_hard(id, enforced(&limits))) {
            return self.reopen(id, now);
        }
        self.decide_anew(id, now);
        self.dirty.insert(id);
        id
    }

    /// Returns the quota's new handle.
    fn reopen(&mut self, id: QuotaId, now: Moment) -> QuotaId {
        let id = self.renew_quota(id);
        self.restage_namespace_of(id, now);
        id
    }

    fn restage_namespace_of(&mut self, id: QuotaId, now: Moment) {
        if let Some(quota) = self.quotas.get(id) {
            self.restage_all(quota.namespace, now);
        }
    }

    /// Pods whose namespace was unknown and is known now are looked at by [`Self::see_namespace`]; those that
    /// were refused wait for their time.
    pub(super) fn retry_pod(&mut self, id: PodId, now: Moment) {
        if matches!(self.stage(id), Stage::Stuck(Stuck::BackingOff))
            && let Some(record) = self.pods.get(id).cloned()
        {
            self.unstage(id, &record);
            self.restage(id, now);
        }
    }
}
