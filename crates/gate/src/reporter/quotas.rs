//! Events on quotas: what other clients do to them, and what they do not enforce.

use std::sync::Arc;

use sluice_engine::QuotaId;

use super::Reporter;
use crate::action::{GateEvent, Record, Regarding};
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::messages::reasons;

impl Reporter {
    /// Another client removed the gate of a pod that waited for room in the quota.
    pub(super) fn on_gate_removed(&mut self, cluster: &Cluster, quota: QuotaId, pod: &str, now: Moment) {
        self.stats.released_by_others += 1;
        if let Some(times) = self.note_gate_removed(quota, now) {
            let message = format!(
                "pod {pod} was let go by another client before there was room for it, the {times}. time lately; it is \
                 counted"
            );
            self.tell_quota(cluster, quota, reasons::GATE_REMOVED, message);
        }
    }

    /// The status of the quota is not what was written: `what` says why.
    pub fn tell_contest(&mut self, cluster: &Cluster, id: QuotaId, what: &str) {
        let message =
            format!("{what}; while that goes on it is corrected ever more slowly, once a minute at last");
        self.tell_quota(cluster, id, reasons::STATUS_CONTESTED, message);
    }

    /// An event on the quota.
    fn tell_quota(&mut self, cluster: &Cluster, id: QuotaId, reason: &'static str, message: String) {
        let Some(quota) = cluster.quotas.get(id) else { return };
        let Some(quota_ref) = cluster.quota_ref(id) else { return };
        let (namespace, name) = (quota_ref.namespace(), Arc::clone(quota_ref.name()));
        tracing::warn!(%namespace, quota = %name, reason, %message, "told on the quota");
        let (regarding, uid) = (Regarding::Quota(id), quota.uid.clone());
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }

    /// An event on the quota says what its status is about to say.
    pub fn tell_not_enforced(&mut self, cluster: &Cluster, record: &Record) {
        if let Some(told) = &record.target.unenforced {
            self.tell_quota(cluster, record.quota, reasons::NOT_ENFORCED, told.message.clone());
        }
    }

    /// The gate of a pod that waits for the quota was removed. Returns how often lately, if it is to be told.
    fn note_gate_removed(&mut self, quota: QuotaId, now: Moment) -> Option<u32> {
        let contest = self.gates.entry(quota).or_default();
        contest.note(now.mono_ms);
        contest.is_reported(1).then_some(contest.times)
    }

    /// Another client has overwritten the status of a quota.
    pub fn note_overwritten(&mut self) {
        self.stats.overwritten += 1;
    }

    /// The quota has another handle.
    pub fn rename_quota(&mut self, old: QuotaId, new: QuotaId) {
        if let Some(contest) = self.gates.remove(&old) {
            self.gates.insert(new, contest);
        }
    }

    /// The quota is no more.
    pub fn forget_quota(&mut self, id: QuotaId) {
        self.gates.remove(&id);
    }
}
