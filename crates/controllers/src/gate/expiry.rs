//! The end of what is charged for updates of pods: a later version, the pod's end, other quotas, or time.

use sluice_engine::{PodId, Uid};
use sluice_index::{NamespaceId, PodWire};

use super::action::{Answer, Release};
use super::admitted::{CHANGED, Judgement, Parts};
use super::config::Moment;
use super::state::State;

/// So many pods are read at a time, to learn what became of updates that were admitted and never seen.
const READS_AT_ONCE: usize = 32;

/// A pod that was not read is read this much later (milliseconds).
const READ_AGAIN_MS: u64 = 1_000;

impl State {
    /// A pod was seen. What was charged for a version before this one was committed, and is counted, or never will be.
    pub(super) fn heed_admitted(&mut self, id: PodId) {
        let Some(admitted) = self.admissions.by_pod.get(&id) else { return };
        let seen = self.pods.get(id).map(|pod| pod.version);
        if seen.is_none_or(|seen| admitted.version.is_older_than(seen)) {
            // A request that was not answered yet cannot commit any more: the API server will ask again.
            self.end_admission(id, &Judgement::Allowed);
        } else {
            self.hold_anew(id);
        }
    }

    /// If no request can be under way any more, the pod is to be read.
    pub(super) fn expire_admission(&mut self, id: PodId, now: Moment) {
        match self.admissions.by_pod.get(&id).map(|admitted| admitted.until_ms) {
            Some(until_ms) if until_ms <= now.mono_ms => self.admissions.to_read.push(id),
            Some(until_ms) => drop(self.pod_later.insert((until_ms, id))),
            None => {}
        }
    }

    pub(super) fn plan_reads(&mut self, now: Moment) -> Vec<Release> {
        let mut ids = std::mem::take(&mut self.admissions.to_read);
        for id in ids.split_off(ids.len().min(READS_AT_ONCE)) {
            self.pod_later.insert((now.mono_ms + READ_AGAIN_MS, id));
        }
        ids.into_iter().filter_map(|id| self.address(id)).collect()
    }

    /// The pod was read after the last request about it could be done.
    pub(super) fn settle_read(&mut self, id: PodId, uid: &Uid, answer: Answer<PodWire>, now: Moment) {
        if self.pods.get(id).is_none_or(|record| record.uid != *uid) {
            return;
        }
        match answer {
            Answer::Done(pod) | Answer::Stale(Some(pod)) => {
                self.see_pod(&pod, now);
                match self.admissions.by_pod.get(&id).map(|admitted| admitted.until_ms) {
                    Some(until_ms) if until_ms <= now.mono_ms => self.end_admission(id, &CHANGED),
                    // There were more questions meanwhile.
                    Some(until_ms) => drop(self.pod_later.insert((until_ms, id))),
                    None => {}
                }
            }
            Answer::Stale(None) => self.forget_pod(id),
            Answer::Refused(_) | Answer::Busy(_) | Answer::Unknown(_) => {
                self.pod_later.insert((now.mono_ms + READ_AGAIN_MS, id));
            }
        }
    }

    /// Nothing is held any more; open questions get this answer.
    pub(super) fn end_admission(&mut self, id: PodId, judgement: &Judgement) {
        self.replace_held(id, Parts::new());
        if let Some(admitted) = self.admissions.by_pod.remove(&id) {
            self.admissions.answer(admitted.tickets, judgement);
        }
    }

    /// The quotas of the namespace are changing: only what was answered with yes is still to be held. Returns the pods to
    /// [`State::hold_anew`] of.
    pub(super) fn suspend_admissions(&mut self, namespace: NamespaceId) -> Vec<PodId> {
        let (mut pods, mut tickets) = (Vec::new(), Vec::new());
        for (id, admitted) in &mut self.admissions.by_pod {
            if self.pods.get(*id).is_some_and(|pod| pod.namespace == namespace) {
                admitted.awaited.clear();
                admitted.wanted = admitted.granted.clone();
                tickets.append(&mut admitted.tickets);
                pods.push(*id);
            }
        }
        self.admissions.answer(tickets, &CHANGED);
        pods
    }
}
