//! Pods that go: which may be let go now, and whether a claim may be taken back.

use sluice_engine::{PodId, Uid};
use sluice_index::{NamespaceId, PodRecord, Version};

use super::Accounts;
use crate::action::Release;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::orders::{News, Order};
use crate::stage::{Stage, Stuck};

/// So long may an API server work on a request (`--request-timeout`, by default).
const REQUEST_TIME_MS: u64 = 60_000;

impl Accounts {
    /// Queues the removal of the pod's gate.
    pub(super) fn enqueue_release(&mut self, cluster: &Cluster, id: PodId) {
        if let Some(record) = cluster.pods.get(id) {
            self.orders.give(Order::Go(record.namespace, id));
        }
    }

    fn is_to_be_released(&self, cluster: &Cluster, id: PodId) -> bool {
        let is_in_flight = |record: &PodRecord| self.sent.is_in_flight(&record.uid);
        self.stages.may_be_released(id) && !cluster.pods.get(id).is_some_and(is_in_flight)
    }

    /// Whether the pod still is what was decided on. If not, requests that may be in flight ask for a version of
    /// it that is no more.
    fn is_decided_as(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord) -> bool {
        let matching = self.matching_quotas(cluster, record.namespace, &record.scope_facts);
        let price = self.price(cluster, id, record);
        match self.stages.get(id) {
            Stage::Assumed { charge, quotas, .. } => {
                // The quotas may have changed instead.
                let is_about = matching == *quotas || self.reclassification.awaits(record.namespace, id);
                // What its owner takes may have changed without the pod.
                let is_same = match &price {
                    Some(payer) => payer.owner.is_some() || payer.charge == *charge,
                    // What there is now was not evaluated.
                    None => false,
                };
                record.unreadable().is_none() && is_same && is_about
            }
            _ => true,
        }
    }

    /// The pod has its turn: if its gate is to be removed now, returns the request, which is in flight from now on, and the
    /// namespace.
    pub fn send(&mut self, cluster: &Cluster, id: PodId) -> Option<(NamespaceId, Release)> {
        if !self.is_to_be_released(cluster, id) {
            return None;
        }
        let record = cluster.pods.get(id)?;
        let (namespace, uid, version) = (record.namespace, record.uid.clone(), record.version);
        if self.reclassification.defer_release(namespace, id) {
            return None;
        }
        // A round waits for the answer about what may have gone.
        if !self.sent.may_be_done_on(id, &uid, version)
            && self.evaluations.rounds().defer_release(namespace, id)
        {
            // The round may have waited for this pod: what was sent for an earlier version cannot be done any more.
            self.evaluations.rounds().on_settled_release(namespace);
            return None;
        }
        let release = cluster.address(id)?;
        self.sent.begin(namespace, uid, version);
        Some((namespace, release))
    }

    /// The namespace of a pod for which a request is in flight.
    pub fn sent_in(&self, pod: &Uid) -> Option<NamespaceId> {
        self.sent.namespace(pod)
    }

    /// The request was answered, or its time is over. Returns the version that it was sent for.
    pub fn on_answered(&mut self, pod: &Uid) -> Version {
        let Some((namespace, version)) = self.sent.answered(pod) else { return Version::default() };
        self.evaluations.rounds().on_settled_release(namespace);
        version
    }

    /// Whether the pod still goes, as the one that was decided on: then the request is made again for the version that there
    /// is now.
    pub fn goes_as_decided(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord) -> bool {
        let goes =
            matches!(self.stages.get(id), Stage::Assumed { .. }) && self.is_decided_as(cluster, id, record);
        if goes {
            self.sent.not_done(id);
        }
        goes
    }

    /// Whether the pod may be released although a request for it was refused.
    pub fn may_be_released_still(&self, id: PodId, now: Moment) -> bool {
        // In doubt, another leader may be releasing it too.
        let is_owned = self.stages.owners().owner_of(id).is_some();
        self.sent.is_worked_on(id, now) || is_owned && self.stages.is_doubted()
    }

    /// The request, which was sent for this version, was not answered.
    pub fn on_outcome_unknown(&mut self, cluster: &Cluster, id: PodId, version: Version, now: Moment) {
        let until_ms = now.mono_ms + cluster.config.in_flight_grace_ms.max(REQUEST_TIME_MS);
        self.sent.outcome_unknown(id, version, until_ms);
    }

    /// The release may have been done. If the pod is what was decided on, it stays charged, and is to be requested again. So
    /// it does if others are asked about it since: their answer changes nothing about what may have been done.
    pub fn stays_charged(&mut self, cluster: &Cluster, id: PodId, now: Moment) -> bool {
        let Some(record) = cluster.pods.get(id).cloned() else { return false };
        let is_awaited = self.price(cluster, id, &record).is_none()
            && self.sent.may_be_done_on(id, &record.uid, record.version);
        let stays = is_awaited || self.is_decided_as(cluster, id, &record);
        if !stays {
            self.revert_claim(id, &record);
            self.classify(cluster, id, now);
        }
        stays
    }

    /// Whether the pod is to go.
    pub fn is_going(&self, id: PodId) -> bool {
        matches!(self.stages.get(id), Stage::Assumed { .. } | Stage::Free { .. })
    }

    /// The release was certainly not done: the pod is decided on again, if not now, from this moment on (milliseconds).
    pub fn give_up_release(&mut self, cluster: &Cluster, id: PodId, from_ms: Option<u64>, now: Moment) {
        self.sent.not_done(id);
        if let Some(from_ms) = from_ms {
            self.sent.back_off(id, from_ms);
        }
        let Some(record) = cluster.pods.get(id).cloned() else { return };
        self.revert_claim(id, &record);
        self.classify(cluster, id, now);
        self.orders.tell(News::Reverted(1));
    }

    /// The time has come to decide again on a pod whose release failed, or to repeat the request. Pods whose namespace was
    /// unknown need none: they are looked at when it is seen.
    pub fn retry_release(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        if matches!(self.stages.get(id), Stage::Stuck(Stuck::BackingOff))
            && let Some(record) = cluster.pods.get(id).cloned()
        {
            self.end_claim(id, &record);
            self.classify(cluster, id, now);
        }
        // Outcome unknown: retry; the patch's tests make that safe.
        if self.is_to_be_released(cluster, id) {
            self.enqueue_release(cluster, id);
        }
    }
}
