//! Ends what is charged for updates of pods that were admitted: a later version was seen, the pod is gone, its quotas have
//! changed, or the time of the update is over.

use sluice_engine::PodId;
use sluice_index::NamespaceId;

use super::Accounts;
use crate::action::Release;
use crate::admission::{CHANGED, Judgement, Ticket};
use crate::cluster::Cluster;
use crate::config::Moment;

impl Accounts {
    /// A pod was seen. What was charged for a version before this one was committed, and is counted, or never will be.
    pub fn on_admitted_pod_seen(&mut self, cluster: &Cluster, id: PodId) {
        let Some(asked) = self.pod_growth.version(&id) else { return };
        let seen = cluster.pods.get(id).map(|pod| pod.version);
        let is_charged = !self.evaluations.is_awaited(id);
        if seen.is_none_or(|seen| asked.is_older_than(seen)) && is_charged {
            // A request that was not answered yet cannot commit any more: the API server will ask again.
            self.end_admission(id, &Judgement::Allowed);
        } else {
            self.hold_anew(cluster, id);
        }
    }

    /// The pod is counted with something else now: what is held beside that changes, whether there is room or not.
    pub(super) fn hold_anew(&mut self, cluster: &Cluster, id: PodId) {
        let Some(wanted) = self.pod_growth.wanted(&id).cloned() else { return };
        let Some(namespace) = cluster.pods.get(id).map(|pod| pod.namespace) else { return };
        match self.parts_of(cluster, id, namespace, &wanted).filter(|_| !wanted.facts.is_empty()) {
            Some(parts) => {
                let quotas = self.admissions.replace_held(id, parts, self.stages.queue_mut());
                self.orders.restate_all(&quotas);
            }
            None => self.end_admission(id, &CHANGED),
        }
    }

    /// Nothing is held any more; open questions get this answer.
    pub(super) fn end_admission(&mut self, id: PodId, judgement: &Judgement) {
        let quotas = self.admissions.end(id, self.stages.queue_mut());
        self.orders.restate_all(&quotas);
        self.admissions.answer(self.pod_growth.end(&id).unwrap_or_default(), judgement);
    }

    /// The quotas of the namespace are changing: only what was allowed is still to be held. Returns the pods to
    /// [`Self::hold_anew`] of.
    pub(super) fn revert_admissions(&mut self, cluster: &Cluster, namespace: NamespaceId) -> Vec<PodId> {
        self.revert_growth_of(cluster, namespace);
        let is_meant = |id: &PodId| cluster.pods.get(*id).is_some_and(|pod| pod.namespace == namespace);
        let (pods, tickets) = self.pod_growth.revert_all(is_meant);
        self.admissions.answer(tickets, &CHANGED);
        pods
    }

    pub fn plan_reads(&mut self, cluster: &Cluster, now: Moment) -> Vec<Release> {
        let ids = self.pod_growth.take_reads(now);
        ids.into_iter().filter_map(|id| cluster.address(id)).collect()
    }

    /// The webhook does not wait for the answer to this question any more.
    pub fn abandon(&mut self, ticket: Ticket) {
        self.pod_growth.abandon(ticket);
        self.machine_growth.abandon(ticket);
    }

    /// Whether updates of pods are charged.
    pub fn has_growth(&self) -> bool {
        !self.pod_growth.is_empty()
    }

    /// The pod could not be read.
    pub fn read_later(&mut self, id: PodId, now: Moment) {
        self.pod_growth.read_later(id, now);
    }

    /// The pod was read when no update of it that was admitted could be in flight any more: nothing more is held for one.
    pub fn on_read(&mut self, id: PodId, now: Moment) {
        // There may have been more questions meanwhile.
        if !self.pod_growth.has_expired(&id, now) {
            return;
        }
        if self.evaluations.is_awaited(id) {
            // What it has become is charged by no answer yet.
            self.read_later(id, now);
        } else {
            self.end_admission(id, &CHANGED);
        }
    }
}
