//! Decisions to release pods: made, recorded by the quotas, or reverted.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::{Charge, Decision, Patience, PodId, QuotaSet};
use sluice_index::NamespaceId;

use super::State;
use crate::admission::{CHANGED, Judgement};
use crate::config::Moment;
use crate::parts::pod_stages::Recorded;

/// Classes of waiting pods that are looked at before others get at the state: about half a millisecond's work.
const LOOKS: usize = 256;

impl State {
    pub(super) fn decide(&mut self, now: Moment) {
        // The wait of a pod that is older than this process begins when this process first sees the pod.
        let patience = Patience { now_ms: now.mono_ms, limit_ms: self.cluster.config.patience_ms };
        for decision in self.stages.queue_mut().decide(patience, LOOKS) {
            self.on_decision(decision, now);
        }
        self.let_paused_go(now);
    }

    pub(super) fn on_decision(&mut self, decision: Decision, now: Moment) {
        match decision {
            Decision::Release { pod, charge, quotas } if self.is_paid_for(pod, &charge, &quotas) => {
                self.stages.decide(pod, charge, Arc::clone(&quotas), 0);
                self.enqueue_release(pod);
                // How many pods are held may be stated.
                self.writes.mark_all(&quotas);
            }
            Decision::Release { pod, charge, quotas } => {
                let lists = self.lists_to_await(&quotas);
                let records = u32::try_from(quotas.len() + lists.len()).unwrap_or(u32::MAX);
                let serial = self.stages.decide(pod, charge, Arc::clone(&quotas), records);
                for quota in quotas.iter() {
                    self.writes.charge(*quota, pod, serial);
                }
                for listed in lists {
                    self.checks.wait(listed, (pod, serial));
                }
            }
            Decision::Held(class) => self.on_class_held(class, now),
        }
    }

    /// Whether a pod without gates takes already all that the owner of both is charged, of every quota that could be about
    /// this pod, of those too that are not seen yet, and that is recorded. Then there is nothing to record, and nothing to
    /// wait for: what a successor counts is the same, whether it sees the release or not.
    fn is_paid_for(&self, pod: PodId, missing: &Charge, quotas: &QuotaSet) -> bool {
        let owners = self.stages.owners();
        let (true, Some(owner), Some(record)) =
            (missing.is_empty(), owners.owner_of(pod), self.cluster.pods.get(pod))
        else {
            return false;
        };
        // A list that is under way may be about to show that the other one has ended.
        let is_alike = |other| {
            let facts = self.cluster.pods.get(other).map(|other| &other.scope_facts);
            facts == Some(&record.scope_facts) && self.cluster.pods.is_listed(other)
        };
        let mut others = owners.pods(owner).iter().copied();
        others.any(|other| self.stages.is_paid_for(pod, other, quotas) && is_alike(other))
            && quotas.iter().all(|quota| self.is_recorded(*quota))
    }

    /// The charges of these decisions are recorded by one more quota, or one more list shows that there is no other.
    pub(super) fn on_charges_confirmed(&mut self, decisions: Vec<(PodId, u64)>) {
        for (pod, serial) in decisions {
            match self.stages.recorded(pod, serial) {
                Recorded::ByAll => self.enqueue_release(pod),
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
    pub(super) fn revert_decisions(&mut self, decisions: &[(PodId, u64)], now: Moment) {
        for (_, serial) in decisions {
            self.revert_growth(*serial, now);
        }
        if decisions.len() > self.cluster.config.reclassified_pods {
            return self.revert_decisions_later(decisions, now);
        }
        for (pod, serial) in decisions {
            if let Some((_, tickets)) = self.pod_growth.revert(*serial) {
                self.admissions.answer(tickets, &CHANGED);
                self.hold_anew(*pod);
                self.stats.reverted += 1;
            }
            if !self.stages.awaits(*pod, *serial) {
                continue;
            }
            let Some(record) = self.cluster.pods.get(*pod).cloned() else { continue };
            self.revert_claim(*pod, &record);
            self.classify(*pod, now);
            self.stats.reverted += 1;
        }
    }

    fn revert_decisions_later(&mut self, decisions: &[(PodId, u64)], now: Moment) {
        let mut pods: BTreeMap<NamespaceId, Vec<PodId>> = BTreeMap::new();
        for (pod, serial) in decisions {
            let is_undone = self.stages.awaits(*pod, *serial);
            if let Some(record) = self.cluster.pods.get(*pod) {
                let pods = pods.entry(record.namespace).or_default();
                pods.extend(is_undone.then_some(*pod));
            }
        }
        for (namespace, pods) in pods {
            self.stats.reverted += pods.len() as u64;
            // Growth that is being admitted in these namespaces is reverted too.
            self.reclassify_later(namespace, pods);
        }
        self.go_on_reclassifying(now);
    }
}
