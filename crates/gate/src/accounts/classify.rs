//! Finds the stage of a pod that claims nothing.

use std::sync::Arc;

use sluice_engine::{PodId, QuotaId, QuotaSet, ScopeFacts};
use sluice_index::{Gates, NamespaceId, PodRecord};
use smallvec::SmallVec;

use super::Accounts;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::orders::News;
use crate::stage::{Stage, Stuck};

/// What becomes of a claim that ends before the pod claims anew.
pub(super) enum ClaimEnd {
    /// What it took is free.
    MakesRoom,
    /// As if it had never been.
    IsReverted,
}

impl Accounts {
    /// Finds the stage of a pod that claims nothing.
    pub fn classify(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        self.ask_about(cluster, id, now);
        let Some(record) = cluster.pods.get(id).cloned() else { return };
        match record.gates {
            Gates::None => self.classify_ungated(cluster, id, &record, now),
            Gates::Foreign => {
                self.end_hold(id);
                self.orders.tell(News::Nothing(id));
                self.stages.place(id, Stage::Foreign);
            }
            Gates::Ours => {
                self.classify_gated(cluster, id, &record, now);
                if self.leading {
                    self.orders.tell(News::Held(id, now));
                }
            }
        }
    }

    /// Ends the pod's claim and finds its stage.
    pub(super) fn claim_anew(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        record: &PodRecord,
        end: ClaimEnd,
        now: Moment,
    ) {
        match end {
            ClaimEnd::MakesRoom => {
                self.end_claim(id, record);
                self.classify(cluster, id, now);
            }
            ClaimEnd::IsReverted => {
                let before = self.counted_where_room_is_kept(id);
                self.revert_claim(id, record);
                self.classify(cluster, id, now);
                self.keep_what_is_charged_no_more(id, &before);
            }
        }
    }

    fn classify_ungated(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord, now: Moment) {
        let quotas = self.matching_quotas(cluster, record.namespace, &record.scope_facts);
        match (record.unreadable().is_some() && !quotas.is_empty(), self.leading) {
            (true, true) => self.orders.tell(News::Held(id, now)),
            (true, false) => {}
            (false, _) => self.orders.tell(News::Nothing(id)),
        }
        self.end_retries(id);
        self.end_hold(id);
        self.orders.restate_all(&quotas);
        self.stages.count(id, self.payer(cluster, id, record), quotas);
    }

    fn classify_gated(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord, now: Moment) {
        self.stages.hold(id, now.mono_ms);
        self.hold_target(cluster, id);
        match self.obstacle(cluster, id, record, now) {
            Ok(quotas) => {
                self.orders.restate_all(&quotas);
                self.note_native(cluster, id);
                self.stages.wait(id, record, self.payer(cluster, id, record), quotas);
                self.pauses.wait(record.namespace, &record.wait_key(), id);
            }
            Err(stage) => {
                match stage {
                    Stage::Free { awaited: 0, .. } => self.enqueue_release(cluster, id),
                    // In a pause it has its turn too, though there is nothing that it could be charged to.
                    Stage::Stuck(Stuck::InvalidQuota(_)) => {
                        self.pauses.wait(record.namespace, &record.wait_key(), id);
                    }
                    _ => {}
                }
                self.stages.place(id, stage);
                if self.leading {
                    self.await_lists(cluster, id);
                }
            }
        }
    }

    /// The quotas that the pod waits for, or the stage of one that does not wait.
    pub fn obstacle(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        record: &PodRecord,
        now: Moment,
    ) -> Result<Arc<QuotaSet>, Stage> {
        let Some(is_targeted) = cluster.namespaces.is_targeted(record.namespace) else {
            return Err(Stage::Stuck(Stuck::UnknownNamespace));
        };
        if self.sent.is_backing_off(id, now) {
            return Err(Stage::Stuck(Stuck::BackingOff));
        }
        if !is_targeted {
            // The pod has the gate, so to an API server its namespace was targeted: the watch of namespaces may be late.
            return Err(Stage::Free { awaited: 1, serial: 0 });
        }
        if cluster.namespaces.get(record.namespace).is_some_and(|namespace| namespace.terminating) {
            return Err(Stage::Stuck(Stuck::Terminating));
        }
        if self.is_exempt(cluster, record) {
            // Whatever quotas there are, seen or not.
            return Err(Stage::Free { awaited: 0, serial: 0 });
        }
        let invalid =
            cluster.invalid_quota(record.namespace).map(|quota| Stage::Stuck(Stuck::InvalidQuota(quota)));
        if let Some(stuck) = invalid.clone().filter(|_| !self.has_pause(record.namespace)) {
            return Err(stuck);
        }
        if let Some(field) = record.unreadable() {
            return Err(Stage::Stuck(Stuck::Unreadable(Arc::clone(field))));
        }
        let quotas = self.matching_quotas(cluster, record.namespace, &record.scope_facts);
        if !quotas.is_empty() {
            if let Some(unknown) = cluster.machine_obstacle(record) {
                return Err(Stage::Stuck(Stuck::Machine(unknown)));
            }
            return match self.price(cluster, id, record) {
                Some(_) => Ok(quotas),
                None => Err(Stage::Stuck(Stuck::Evaluating)),
            };
        }
        // What it awaits is decided by the process that leads.
        Err(invalid.unwrap_or(Stage::Free { awaited: 1, serial: 0 }))
    }

    /// The quotas that are about such a pod of a namespace.
    pub(super) fn matching_quotas(
        &mut self,
        cluster: &Cluster,
        id: NamespaceId,
        facts: &ScopeFacts,
    ) -> Arc<QuotaSet> {
        let Some(namespace) = cluster.namespaces.get(id) else { return Arc::default() };
        let is_about = |id: &QuotaId| {
            let compiled = cluster.quotas.get(*id).and_then(|quota| quota.compiled.as_ref().ok());
            compiled.is_some_and(|compiled| compiled.scopes.matches(facts))
        };
        let matching: SmallVec<[QuotaId; 8]> = namespace.quotas().iter().copied().filter(is_about).collect();
        self.quota_sets.share(id.share(), &matching)
    }
}
