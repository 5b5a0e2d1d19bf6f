//! Applies watch events of pods.

use sluice_engine::{PodId, Uid};
use sluice_index::{Gates, PodChange, PodFacts, PodRecord, PodWire, Source};

use super::State;
use super::classify::ClaimEnd;
use crate::admission::CHANGED;
use crate::config::Moment;
use crate::evaluators::Content;
use crate::stage::Stage;

impl State {
    /// A list of pods begins.
    pub fn begin_pods(&mut self) {
        self.cluster.pods.begin_list();
    }

    /// The list of pods is complete.
    pub fn end_pods(&mut self) {
        for id in self.cluster.pods.end_list() {
            self.forget_pod(id);
        }
    }

    /// A pod was added or modified.
    pub fn apply_pod(&mut self, wire: &PodWire, now: Moment) {
        self.see_pod(wire, Source::Watch, now);
    }

    /// A pod was added or modified, and was read before the state was locked: how long that takes is up to the tenant.
    pub fn apply_read_pod(&mut self, facts: PodFacts, now: Moment) {
        self.see_facts(facts, None, Source::Watch, now);
    }

    /// As [`Self::apply_read_pod`], with the content that evaluators are asked about.
    pub fn apply_pod_with_content(&mut self, facts: PodFacts, content: Option<Content>, now: Moment) {
        self.see_facts(facts, content, Source::Watch, now);
    }

    /// A pod is this, by an answer or the watch.
    pub(super) fn see_pod(&mut self, wire: &PodWire, by: Source, now: Moment) {
        let facts = self.cluster.config.read(wire, now);
        self.see_facts(facts, None, by, now);
    }

    fn see_facts(&mut self, facts: PodFacts, content: Option<Content>, by: Source, now: Moment) {
        let admitted = (!self.pod_growth.is_empty()).then(|| (facts.namespace.clone(), facts.name.clone()));
        let before = self.cluster.known_claimant(&facts);
        let version = facts.version;
        let known =
            self.evaluations.is_on().then(|| self.cluster.named(&facts.namespace, &facts.name)).flatten();
        let is_news = known.is_none_or(|(_, known)| known != version);
        match self.cluster.pods.upsert(facts, by, &mut self.cluster.namespaces) {
            PodChange::Added(id) => {
                self.see_content(id, content, true);
                self.classify(id, now);
                self.on_pod_changed(id, None);
            }
            PodChange::Changed(id) => {
                self.see_content(id, content, is_news);
                self.reconsider_pod(id, now);
                self.on_pod_changed(id, before);
            }
            PodChange::Replaced(old, id) => {
                // The handle may be the old one's: everything about the old one has to go first.
                self.drop_pod(id, &old);
                self.see_content(id, content, true);
                self.classify(id, now);
                self.on_pod_changed(id, before);
            }
            PodChange::Same => {
                if let Some((id, _)) = known
                    && self.cluster.pods.get(id).is_some_and(|pod| pod.version == version)
                    && self.see_content(id, content, is_news)
                {
                    self.on_content_changed(id, now);
                    self.ask_about(id, now);
                }
            }
        }
        let find = |(namespace, name): (Box<str>, Box<str>)| {
            self.cluster.pods.find(self.cluster.namespaces.id(&namespace)?, &name)
        };
        if let Some(id) = admitted.and_then(find) {
            self.on_admitted_pod_seen(id);
        }
    }

    /// What others are charged may depend on the pod.
    fn on_pod_changed(&mut self, id: PodId, before: Option<PodRecord>) {
        self.appraise_owner_of(id);
        if let Some(record) = self.cluster.pods.get(id).filter(|_| self.evaluations.is_on()).cloned() {
            self.look_beside(id, &record);
        }
        let after = self.cluster.claimant(id);
        for record in before.iter().chain(&after) {
            self.on_launcher_changed(record);
        }
    }

    /// A pod was deleted.
    pub fn delete_pod(&mut self, wire: &PodWire) {
        let meta = &wire.metadata;
        let id =
            self.cluster.namespaces.id(meta.namespace.as_deref().unwrap_or_default()).and_then(|namespace| {
                self.cluster.pods.find(namespace, meta.name.as_deref().unwrap_or_default())
            });
        let Some(id) = id else { return };
        let uid = Uid::parse(meta.uid.as_deref().unwrap_or_default());
        if self.cluster.pods.get(id).is_some_and(|record| record.uid == uid) {
            self.forget_pod(id);
        }
    }

    pub(super) fn forget_pod(&mut self, id: PodId) {
        // Its claims end while its namespace is still known.
        let Some(record) = self.cluster.pods.get(id).cloned() else { return };
        self.drop_pod(id, &record);
        self.cluster.pods.remove(id, &mut self.cluster.namespaces);
        self.on_launcher_changed(&record);
    }

    fn drop_pod(&mut self, id: PodId, record: &PodRecord) {
        self.appraise_later_without(record);
        self.look_beside(id, record);
        self.evaluations.forget(id);
        self.end_claim(id, record);
        self.end_admission(id, &CHANGED);
        self.events.forget(id);
        self.end_hold(id);
        self.releases.end_retries(id);
    }

    pub(super) fn reconsider_pod(&mut self, id: PodId, now: Moment) {
        let Some(record) = self.cluster.pods.get(id).cloned() else { return };
        match (self.stages.get(id), record.gates) {
            // Our release, or one that is not answered yet, has arrived.
            (Stage::Assumed { .. }, Gates::None) => self.confirm_release(id, &record, now),
            (Stage::Free { .. }, Gates::None) => {
                self.note_release(id, now);
                self.end_claim(id, &record);
                self.classify(id, now);
            }
            // Its gate is being removed: the answer will say whether it still was the pod decided on.
            (Stage::Assumed { .. }, Gates::Ours) if self.releases.is_in_flight(&record.uid) => {}
            // Another client released it: perhaps a predecessor for whose charge room is kept.
            (Stage::Waiting(_) | Stage::Stuck(_), Gates::None) => {
                self.count_foreign_release(id, &record, now);
            }
            _ => self.claim_anew(id, &record, ClaimEnd::MakesRoom, now),
        }
    }

    fn confirm_release(&mut self, id: PodId, record: &PodRecord, now: Moment) {
        let Some(charge) = self.stages.confirm(id) else { return };
        self.note_release(id, now);
        self.ask_about(id, now);
        // What it takes, and of what, may have changed together with the gate.
        let matching = self.matching_quotas(record.namespace, &record.scope_facts);
        let is_same = charge == self.payer(id, record).charge;
        if is_same && matches!(self.stages.get(id), Stage::Counted { quotas, .. } if *quotas == matching) {
            return;
        }
        let end = if is_same { ClaimEnd::IsReverted } else { ClaimEnd::MakesRoom };
        self.claim_anew(id, record, end, now);
    }

    fn count_foreign_release(&mut self, id: PodId, record: &PodRecord, now: Moment) {
        // Or this process released it, before there was a quota.
        let is_ours = self.releases.may_be_done(id, &record.uid);
        self.end_claim(id, record);
        self.ask_about(id, now);
        let payer = self.payer(id, record);
        let quotas = self.matching_quotas(record.namespace, &record.scope_facts);
        if !is_ours {
            self.on_gate_removed(record, &quotas, now);
        }
        self.events.forget(id);
        self.end_hold(id);
        self.writes.mark_all(&quotas);
        if record.unreadable.is_none() {
            self.stages.arrive(id, payer, quotas);
        } else {
            // It would be taken for everything that is in flight.
            self.stages.count(id, payer, quotas);
        }
    }

    fn note_release(&mut self, id: PodId, now: Moment) {
        self.releases.end_retries(id);
        self.events.forget(id);
        self.stats.released += 1;
        if let Some(since_ms) = self.end_hold(id) {
            let waited = now.mono_ms.saturating_sub(since_ms);
            #[allow(clippy::cast_precision_loss)]
            self.stats.waits_s.push(waited as f64 / 1000.0);
        }
    }
}
