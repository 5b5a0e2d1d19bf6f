//! What a pod that was seen means for its claim.

use sluice_engine::{PodId, QuotaId};
use sluice_index::{Gates, PodRecord};

use super::Accounts;
use super::classify::ClaimEnd;
use crate::accounts::parts::foreign_charges::Place;
use crate::admission::CHANGED;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::evaluators::Content;
use crate::orders::{News, Order};
use crate::stage::Stage;

impl Accounts {
    /// A pod was added. `before`: the pod that it replaces, where what others are charged may depend on that one.
    pub fn on_pod_added(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        content: Option<Content>,
        before: Option<PodRecord>,
        now: Moment,
    ) {
        self.see_content(id, content, true);
        self.classify(cluster, id, now);
        self.look_at_others(cluster, id, before);
    }

    /// A pod has changed. `before`: the pod as it was, where what others are charged may depend on that. `is_news`: this is
    /// another version.
    pub fn on_pod_changed(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        (content, is_news): (Option<Content>, bool),
        before: Option<PodRecord>,
        now: Moment,
    ) {
        self.see_content(id, content, is_news);
        self.reconsider_pod(cluster, id, now);
        self.look_at_others(cluster, id, before);
    }

    /// A pod was seen, of which no more has changed than its content.
    pub fn on_pod_same(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        (content, is_news): (Option<Content>, bool),
        now: Moment,
    ) {
        if self.see_content(id, content, is_news) {
            self.on_content_changed(cluster, id, now);
            self.ask_about(cluster, id, now);
            if let Some(record) = cluster.pods.get(id) {
                self.note_change_for_others(record.namespace);
                // No evaluator answers about a running pod that none selects any more.
                if matches!(self.stages.get(id), Stage::Counted { .. }) && !self.is_stage_right(cluster, id) {
                    self.reclassify(cluster, id, record.namespace, now);
                }
            }
        }
    }

    /// The pod may be over by now.
    pub fn on_pod_over(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        let Some(record) = cluster.pods.get(id).cloned() else { return };
        self.end_claim(id, &record);
        self.classify(cluster, id, now);
        self.appraise_owner_of(cluster, id);
        self.look_beside(cluster, id, &record);
        self.look_at_shadows_beside(cluster, id, &record);
        self.on_launcher_changed(cluster, &record);
    }

    /// What others are charged may depend on the pod.
    fn look_at_others(&mut self, cluster: &Cluster, id: PodId, before: Option<PodRecord>) {
        self.appraise_owner_of(cluster, id);
        if let Some(record) = cluster.pods.get(id) {
            self.note_change_for_others(record.namespace);
        }
        if let Some(record) =
            cluster.pods.get(id).filter(|_| self.evaluations.is_on() || self.shadow.is_on()).cloned()
        {
            self.look_beside(cluster, id, &record);
            self.look_at_shadows_beside(cluster, id, &record);
        }
        let after = cluster.claimant(id);
        for record in before.iter().chain(&after) {
            self.on_launcher_changed(cluster, record);
        }
    }

    /// The pod goes.
    pub fn drop_pod(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord) {
        self.appraise_later_without(cluster, record);
        self.look_beside(cluster, id, record);
        self.look_at_shadows_beside(cluster, id, record);
        self.evaluations.forget(id, record.namespace);
        self.note_change_for_others(record.namespace);
        self.shadow.forget(id);
        self.end_claim(id, record);
        self.end_admission(id, &CHANGED);
        self.orders.tell(News::Nothing(id));
        self.end_hold(id);
        self.end_retries(id);
    }

    pub(super) fn reconsider_pod(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        let Some(record) = cluster.pods.get(id).cloned() else { return };
        match (self.stages.get(id), record.gates) {
            // Our release, or one that is not answered yet, has arrived.
            (Stage::Assumed { .. }, Gates::None) => self.confirm_release(cluster, id, &record, now),
            (Stage::Free { .. }, Gates::None) => {
                self.note_release(id, now);
                self.end_claim(id, &record);
                self.classify(cluster, id, now);
            }
            // The removal of the gate is in flight: the answer will say whether the pod was still the one decided on.
            (Stage::Assumed { .. }, Gates::Ours) if self.sent.is_in_flight(&record.uid) => {}
            // Another client released it: perhaps a predecessor for whose charge room is kept.
            (Stage::Waiting(_) | Stage::Stuck(_), Gates::None) => {
                self.count_foreign_release(cluster, id, &record, now);
            }
            _ => self.claim_anew(cluster, id, &record, ClaimEnd::MakesRoom, now),
        }
    }

    fn confirm_release(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord, now: Moment) {
        let Some(charge) = self.stages.confirm(id) else { return };
        self.note_release(id, now);
        self.ask_about(cluster, id, now);
        // What it takes, and of what, may have changed together with the gate.
        let matching = self.matching_quotas(cluster, record.namespace, &record.scope_facts);
        let payer = self.payer(cluster, id, record);
        // A VM that is charged by its pods is appraised after this: until then it keeps what the pod was to take.
        let is_kept =
            payer.owner.is_some() && cluster.machines.depend_on_pods() && charge.covers(&payer.charge);
        let is_same = is_kept || charge == payer.charge;
        if is_same && matches!(self.stages.get(id), Stage::Counted { quotas, .. } if *quotas == matching) {
            return;
        }
        let end = if is_same { ClaimEnd::IsReverted } else { ClaimEnd::MakesRoom };
        self.claim_anew(cluster, id, record, end, now);
    }

    fn count_foreign_release(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord, now: Moment) {
        // Or this process released it, before there was a quota.
        let is_ours = self.sent.may_be_done(id, &record.uid);
        self.end_claim(id, record);
        self.ask_about(cluster, id, now);
        let payer = self.payer(cluster, id, record);
        let quotas = self.matching_quotas(cluster, record.namespace, &record.scope_facts);
        if !is_ours {
            self.on_gate_removed(record, &quotas, now);
        }
        self.orders.tell(News::Nothing(id));
        self.end_hold(id);
        self.orders.restate_all(&quotas);
        if record.unreadable().is_none() {
            self.stages.arrive(id, payer, quotas);
        } else {
            // A pod that cannot be read is counted with the largest amount there is. Arriving, it would use up all room that
            // is kept for what is in flight.
            self.stages.count(id, payer, quotas);
        }
    }

    pub fn note_release(&mut self, id: PodId, now: Moment) {
        self.end_retries(id);
        self.orders.tell(News::Nothing(id));
        let since_ms = self.end_hold(id);
        self.orders.tell(News::Released(since_ms.map(|since_ms| now.mono_ms.saturating_sub(since_ms))));
    }

    /// Another client removed the gate of a pod that waited for room in these quotas.
    fn on_gate_removed(&mut self, record: &PodRecord, quotas: &[QuotaId], now: Moment) {
        let Some(first) = quotas.first().copied() else { return };
        // Another leader may have released it.
        let is_kept = |place| self.foreign_charges.is_kept(place);
        let may_be_theirs = quotas.iter().any(|id| is_kept(Place::Quota(*id)))
            || record.ownership().is_some() && is_kept(Place::Anywhere);
        if self.leading && !may_be_theirs {
            self.orders.tell(News::GateRemoved(first, record.name.clone(), now));
        }
    }

    /// The pod counts, or is gone: earlier failures to remove its gate do not matter any more.
    pub(super) fn end_retries(&mut self, id: PodId) {
        self.sent.forget(id);
        self.orders.give(Order::EndRetries(id));
    }
}
