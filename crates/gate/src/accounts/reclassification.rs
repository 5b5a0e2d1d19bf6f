//! Pods that have to find their stage anew because their quotas, or their namespace, have changed.
//!
//! There may be very many, so it is done for some at a time. A quota that counts other things than before is another one to
//! the queue, with a ledger of its own, empty at first: what pods claimed of the old one has gone with that, and what they
//! claim of the new one is right as soon as each of them has had its turn. Until then the namespace is paused, and all
//! quotas that are about it: no pod of theirs is decided on, none of the namespace is released, no status of theirs is
//! written, no growth is admitted. Watch events are applied as always.

use std::sync::Arc;

use sluice_engine::{Charge, PodId};
use sluice_index::{NamespaceId, PodRecord};

use super::Accounts;
use super::classify::ClaimEnd;
use crate::accounts::parts::owners::Payer;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::orders::Order;
use crate::stage::Stage;

impl Accounts {
    /// All pods of a namespace have to find their stage anew.
    pub fn reclassify_all(&mut self, cluster: &Cluster, namespace: NamespaceId, now: Moment) {
        self.reclassify_each(cluster, [namespace], now);
    }

    /// All pods of these namespaces have to find their stage anew.
    pub fn reclassify_each(
        &mut self,
        cluster: &Cluster,
        namespaces: impl IntoIterator<Item = NamespaceId>,
        now: Moment,
    ) {
        for namespace in namespaces {
            let known = cluster.namespaces.get(namespace);
            let (pods, quotas) = known.map_or((&[][..], &[][..]), |known| (known.pods(), known.quotas()));
            self.quota_sets.keep_only(namespace.share(), quotas);
            let pods = pods.to_vec();
            self.reclassification.restart(namespace);
            self.reclassify_later(cluster, namespace, pods);
        }
        self.go_on_reclassifying(cluster, now);
    }

    /// These pods of a namespace have to find their stage anew.
    pub fn reclassify_later(&mut self, cluster: &Cluster, namespace: NamespaceId, pods: Vec<PodId>) {
        let admitted = self.revert_admissions(cluster, namespace);
        let known = cluster.namespaces.get(namespace);
        let many = known.map_or(usize::MAX, |known| known.pods().len());
        let quotas = known.map(|known| known.quotas().to_vec()).unwrap_or_default();
        self.reclassification.pause(namespace, pods.into_iter().chain(admitted), many, &quotas);
        for quota in quotas {
            self.stages.queue_mut().pause(quota);
        }
    }

    /// The next pods have their turn. Namespaces take turns, so that one whose quotas are edited all the time keeps no other
    /// paused.
    pub fn go_on_reclassifying(&mut self, cluster: &Cluster, now: Moment) {
        let mut most = cluster.config.reclassified_pods;
        while most > 0
            && let Some((namespace, pods)) = self.reclassification.next(most)
        {
            most -= pods.len();
            for id in pods {
                self.reclassify(cluster, id, namespace, now);
            }
            self.resume_namespace(cluster, namespace, now);
        }
    }

    pub(super) fn reclassify(&mut self, cluster: &Cluster, id: PodId, namespace: NamespaceId, now: Moment) {
        // The handle may be another pod's by now.
        let Some(record) = cluster.pods.get(id).filter(|record| record.namespace == namespace).cloned()
        else {
            return;
        };
        let in_flight = match self.stages.get(id) {
            Stage::Assumed { charge, serial, awaited: 0, .. }
                if self.sent.may_be_done_on(id, &record.uid, record.version) =>
            {
                Some((Arc::clone(charge), *serial))
            }
            _ => None,
        };
        match in_flight {
            // The removal of the gate is in flight and cannot be called back: the pod stays charged, to the quotas of now.
            Some((charge, serial)) => {
                self.revert_claim(id, &record);
                self.assume_in_flight(cluster, id, &record, charge, serial);
            }
            None => self.claim_anew(cluster, id, &record, ClaimEnd::IsReverted, now),
        }
        self.hold_anew(cluster, id);
    }

    fn assume_in_flight(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        record: &PodRecord,
        charge: Arc<Charge>,
        serial: u64,
    ) {
        let quotas = self.matching_quotas(cluster, record.namespace, &record.scope_facts);
        self.orders.restate_all(&quotas);
        let payer = match self.payer(cluster, id, record) {
            // Whatever of both it will be.
            Payer { charge: whole, owner: owner @ Some(_) } => {
                Payer { charge: Arc::new(charge.max(&whole)), owner }
            }
            Payer { owner: None, .. } => Payer::pod(charge),
        };
        self.stages.assume_in_flight(id, payer, quotas, serial);
    }

    /// If all pods of the namespace have had their turn, it is paused no longer.
    fn resume_namespace(&mut self, cluster: &Cluster, namespace: NamespaceId, now: Moment) {
        let keeps = self.evaluations.is_pending(namespace);
        let Some(ended) = self.reclassification.end(namespace, keeps) else { return };
        ended.releases.into_iter().for_each(|id| self.enqueue_release(cluster, id));
        self.orders.give(Order::List(namespace));
        for quota in ended.foreign_charges {
            self.orders.give(Order::KeepRecorded(quota, now));
        }
        for quota in ended.resumed {
            self.stages.queue_mut().resume(quota);
            self.orders.give(Order::Restate(quota));
        }
        for quota in ended.closed {
            self.close_quota(quota);
        }
    }

    /// Whether a namespace is targeted matters to its gated pods only.
    pub fn reclassify_gated(&mut self, cluster: &Cluster, namespace: NamespaceId, now: Moment) {
        let gated = self.gated(cluster, namespace);
        if !gated.is_empty() {
            self.reclassify_later(cluster, namespace, gated);
            self.go_on_reclassifying(cluster, now);
        }
    }

    /// Gated pods that have no release in flight.
    pub fn gated(&self, cluster: &Cluster, namespace: NamespaceId) -> Vec<PodId> {
        let is_in_flight = |record: &PodRecord| self.sent.is_in_flight(&record.uid);
        let is_gated = |id: &PodId| {
            matches!(self.stages.get(*id), Stage::Waiting(_) | Stage::Stuck(_) | Stage::Free { .. })
                && !cluster.pods.get(*id).is_some_and(is_in_flight)
        };
        let pods = cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
        pods.iter().copied().filter(is_gated).collect()
    }
}
