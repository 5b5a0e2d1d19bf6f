//! Decisions to release pods: made, recorded by the quotas, or reverted.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::{Charge, ClassId, Decision, Patience, PodId, QuotaSet};
use sluice_index::NamespaceId;

use super::Accounts;
use crate::accounts::parts::pod_stages::Recorded;
use crate::admission::{CHANGED, Judgement};
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::orders::{News, Order};

/// So many classes of waiting pods are looked at in one step, about half a millisecond's work: then watches have their turn.
const MAX_PER_STEP: usize = 256;

impl Accounts {
    pub fn decide(&mut self, cluster: &Cluster, now: Moment) {
        if self.is_resigning {
            return;
        }
        // The wait of a pod that is older than this process begins when this process first sees the pod.
        let patience = Patience { now_ms: now.mono_ms, limit_ms: cluster.config.patience_ms };
        for decision in self.stages.queue_mut().decide(patience, MAX_PER_STEP) {
            self.on_decision(cluster, decision, now);
        }
        self.let_paused_go(cluster, now);
    }

    pub(super) fn on_decision(&mut self, cluster: &Cluster, decision: Decision, now: Moment) {
        match decision {
            Decision::Release { pod, charge, quotas } if self.is_paid_for(cluster, pod, &charge, &quotas) => {
                self.stages.decide(pod, charge, Arc::clone(&quotas), 0);
                self.enqueue_release(cluster, pod);
                // How many pods are held may be stated.
                self.orders.restate_all(&quotas);
            }
            Decision::Release { pod, charge, quotas } => {
                let lists = self.lists_to_await(cluster, &quotas);
                let records = u32::try_from(quotas.len() + lists.len()).unwrap_or(u32::MAX);
                let serial = self.stages.decide(pod, charge, Arc::clone(&quotas), records);
                for quota in quotas.iter() {
                    self.orders.give(Order::Record(*quota, (pod, serial)));
                }
                for listed in lists {
                    self.orders.give(Order::Await(listed, (pod, serial)));
                }
            }
            Decision::Held(class) => self.on_class_held(cluster, class, now),
        }
    }

    /// Whether the release of the pod adds nothing to what is recorded. That is so where another pod of its owner, without
    /// gates, takes already all that the owner is charged, and every quota about this pod has recorded it. The two pods have
    /// to be alike, so that a quota that was not seen yet is about both of them or about none. Then there is nothing to
    /// record and nothing to wait for: a successor counts the same, whether it sees the release or not.
    fn is_paid_for(&self, cluster: &Cluster, pod: PodId, missing: &Charge, quotas: &QuotaSet) -> bool {
        let owners = self.stages.owners();
        let (true, Some(owner), Some(record)) =
            (missing.is_empty(), owners.owner_of(pod), cluster.pods.get(pod))
        else {
            return false;
        };
        // Where the list of pods that is under way has not shown the other pod yet, that pod may have ended.
        let is_alike = |other| {
            let facts = cluster.pods.get(other).map(|other| &other.scope_facts);
            facts == Some(&record.scope_facts) && cluster.pods.is_listed(other)
        };
        let mut others = owners.pods(owner).iter().copied();
        others.any(|other| self.stages.is_paid_for(pod, other, quotas) && is_alike(other))
            && quotas.iter().all(|quota| self.is_recorded(cluster, *quota))
    }

    /// For each of these decisions one more quota has recorded the charge, or one more list has shown that there is no
    /// further quota. The gate of a pod goes with the last of them.
    pub fn on_charges_confirmed(&mut self, cluster: &Cluster, decisions: Vec<(PodId, u64)>) {
        for (pod, serial) in decisions {
            match self.stages.recorded(pod, serial) {
                Recorded::ByAll => self.enqueue_release(cluster, pod),
                Recorded::BySome => {}
                Recorded::Unrelated => {
                    let mut tickets = self.pod_growth.recorded(serial);
                    tickets.extend(self.machine_growth.recorded(serial));
                    self.admissions.answer(tickets, &Judgement::Allowed);
                }
            }
        }
    }

    /// Reverts decisions that are not recorded by all their quotas.
    pub fn revert_decisions(&mut self, cluster: &Cluster, decisions: &[(PodId, u64)], now: Moment) {
        for (_, serial) in decisions {
            self.revert_growth(cluster, *serial, now);
        }
        if decisions.len() > cluster.config.reclassified_pods {
            return self.revert_decisions_later(cluster, decisions, now);
        }
        for (pod, serial) in decisions {
            if let Some((_, tickets)) = self.pod_growth.revert(*serial) {
                self.admissions.answer(tickets, &CHANGED);
                self.hold_anew(cluster, *pod);
                self.orders.tell(News::Reverted(1));
            }
            if !self.stages.awaits(*pod, *serial) {
                continue;
            }
            let Some(record) = cluster.pods.get(*pod).cloned() else { continue };
            self.revert_claim(*pod, &record);
            self.classify(cluster, *pod, now);
            self.orders.tell(News::Reverted(1));
        }
    }

    fn revert_decisions_later(&mut self, cluster: &Cluster, decisions: &[(PodId, u64)], now: Moment) {
        let mut pods: BTreeMap<NamespaceId, Vec<PodId>> = BTreeMap::new();
        for (pod, serial) in decisions {
            let is_undone = self.stages.awaits(*pod, *serial);
            if let Some(record) = cluster.pods.get(*pod) {
                let pods = pods.entry(record.namespace).or_default();
                pods.extend(is_undone.then_some(*pod));
            }
        }
        for (namespace, pods) in pods {
            self.orders.tell(News::Reverted(pods.len() as u64));
            // Growth that is being admitted in these namespaces is reverted too.
            self.reclassify_later(cluster, namespace, pods);
        }
        self.go_on_reclassifying(cluster, now);
    }

    /// The class is held for another reason than before. Events tell its first pods; the others of a long queue are told
    /// when they are among the first.
    fn on_class_held(&mut self, cluster: &Cluster, class: ClassId, now: Moment) {
        let Some(class) = self.stages.queue().class(class) else { return };
        for pod in class.pods().take(cluster.config.notified_pods) {
            self.orders.tell(News::Held(pod, now));
        }
    }
}
