//! When the pods of a namespace are asked about together, where evaluators are sent the other pods too.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::PodId;
use sluice_index::{Gates, NamespaceId};

use super::Accounts;
use crate::accounts::parts::evaluations::Evaluation;
use crate::accounts::parts::evaluations::rounds::Member;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::evaluators::{NotRead, ReadRound};
use crate::stage::Stage;

/// Whom a round would ask about.
enum Due {
    /// A pod at least.
    Some,
    /// Evaluators say what pods take, and each of these runs and was asked about lately, or is asked about later since they
    /// do not work.
    NoneYet,
    /// Evaluators say of no pod what it takes.
    Never,
}

impl Accounts {
    /// Begins the rounds whose time has come.
    pub(super) fn begin_rounds(&mut self, cluster: &Cluster, now: Moment) {
        while let Some(namespace) = self.evaluations.rounds().next(now.mono_ms) {
            let pods = cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
            match self.who_is_due(cluster, namespace, pods, now) {
                Due::Some => {}
                Due::NoneYet => {
                    self.evaluations.rounds().skip(namespace, now.mono_ms);
                    continue;
                }
                Due::Never => {
                    self.evaluations.rounds().forget(namespace);
                    continue;
                }
            }
            let is_assumed = |id: &PodId| matches!(self.stages.get(*id), Stage::Assumed { .. });
            if pods.iter().any(is_assumed) && self.evaluations.rounds().put_off(namespace, now.mono_ms) {
                continue;
            }
            // What was not answered may have been done, or be done yet. The request is repeated, and the answer to that
            // tells.
            let is_repeated = |id: PodId| {
                let pod = cluster.pods.get(id).filter(|pod| pod.namespace == namespace && is_assumed(&id));
                pod.is_some_and(|pod| self.sent.may_be_done_on(id, &pod.uid, pod.version))
            };
            // In a pause nothing is repeated, and it waits for the round.
            let may_be_repeated = !self.reclassification.is_paused(namespace);
            if self.sent.is_any_in_flight(namespace)
                || may_be_repeated && self.sent.in_doubt().any(is_repeated)
            {
                self.evaluations.rounds().hold(namespace);
                continue;
            }
            let version =
                pods.iter().filter_map(|id| cluster.pods.get(*id)).map(|pod| pod.version.number()).max();
            let form = self.evaluations.config().and_then(|config| config.other_pods);
            let name = cluster.namespaces.get(namespace).map(|known| Arc::clone(&known.name));
            let (Some(version), Some(name), Some(form)) = (version, name, form) else {
                self.evaluations.rounds().forget(namespace);
                continue;
            };
            let round = self.evaluations.rounds().begin_reading(namespace, version, now.mono_ms);
            self.reads.extend(round.map(|round| ReadRound { namespace, name, round, form }));
        }
        for id in self.evaluations.rounds().take_resumed() {
            self.enqueue_release(cluster, id);
        }
    }

    /// Whether a round of the namespace would ask about a pod: it is not read for nothing.
    fn who_is_due(&mut self, cluster: &Cluster, namespace: NamespaceId, pods: &[PodId], now: Moment) -> Due {
        let asks_running = self.evaluations.rounds().asks_running(namespace, now.mono_ms);
        let mut due = Due::Never;
        for (id, record) in pods.iter().filter_map(|id| Some((*id, cluster.pods.get(*id)?))) {
            let selected = self.asked_of(cluster, id, record);
            if !self.evaluations.is_in_rounds(selected) {
                continue;
            }
            let is_answered = matches!(self.evaluations.of(id, selected), Evaluation::Current(_));
            let is_due = record.gates != Gates::None || asks_running || !is_answered;
            if is_due && !self.evaluations.is_resting(id, now) {
                return Due::Some;
            }
            due = Due::NoneYet;
        }
        due
    }

    /// The namespaces to read for their rounds.
    pub fn take_reads(&mut self) -> Vec<ReadRound> {
        std::mem::take(&mut self.reads)
    }

    /// A namespace is read for its round, or is not.
    pub fn on_round_read(
        &mut self,
        cluster: &Cluster,
        namespace: NamespaceId,
        number: u64,
        read: Result<(), NotRead>,
        now: Moment,
    ) {
        if !self.evaluations.rounds().is_under_way(namespace, number) {
            return;
        }
        let pods = cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
        let member = |id: &PodId| {
            let record = cluster.pods.get(*id)?;
            let selected = self.asked_of(cluster, *id, record);
            let is_waiting = record.gates != Gates::None;
            self.evaluations.is_in_rounds(selected).then_some(Member { pod: *id, selected, is_waiting })
        };
        let members: Vec<Member> = pods.iter().filter_map(member).collect();
        match read {
            Ok(()) => {
                for id in self.evaluations.begin_round(namespace, members, now) {
                    self.reclassify_unless_going(cluster, id, now);
                }
            }
            Err(why) => {
                let waiting: Vec<PodId> =
                    members.iter().filter(|it| it.is_waiting).map(|it| it.pod).collect();
                self.evaluations.end_unread(namespace, members, &why, now);
                for id in waiting {
                    if !self.is_stage_right(cluster, id) || why.are_too_many {
                        self.reclassify_unless_going(cluster, id, now);
                    }
                }
            }
        }
    }

    /// What was said of the pod before does not hold.
    pub(super) fn reclassify_unless_going(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        let Some(record) = cluster.pods.get(id) else { return };
        let is_decided_by = match self.stages.get(id) {
            Stage::Waiting(_) => true,
            Stage::Assumed { .. } => !self.sent.may_be_done(id, &record.uid),
            _ => false,
        };
        if is_decided_by {
            self.reclassify(cluster, id, record.namespace, now);
        }
    }

    /// A leader before this one may have released pods that no round has shown yet: what was answered says nothing of them.
    pub(super) fn expire_rounds(&mut self, cluster: &Cluster) {
        let held: BTreeSet<NamespaceId> =
            self.stages.held().filter_map(|id| cluster.pods.get(id)).map(|record| record.namespace).collect();
        for namespace in held {
            self.evaluations.rounds().expire(namespace);
        }
    }

    /// A pod of the namespace is not what it was: what is said of others may change with it.
    pub(super) fn note_change_for_others(&mut self, namespace: NamespaceId) {
        self.evaluations.rounds().note_change(namespace);
    }
}
