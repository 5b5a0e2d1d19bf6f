//! Requests that remove gates, and their answers.

use std::time::Duration;

use sluice_engine::{PodId, Uid};
use sluice_index::{PodRecord, PodWire, Source};

use super::State;
use crate::action::{Answer, Release};
use crate::config::Moment;
use crate::stage::{Stage, Stuck};

/// So long may an API server work on a request (`--request-timeout`, by default).
const REQUEST_TIME_MS: u64 = 60_000;

impl State {
    pub(super) fn plan_releases(&mut self) -> Vec<Release> {
        let mut releases = Vec::new();
        while let Some(id) = self.releases.next() {
            if !self.is_to_be_released(id) {
                continue;
            }
            let Some((namespace, uid)) =
                self.cluster.pods.get(id).map(|pod| (pod.namespace, pod.uid.clone()))
            else {
                continue;
            };
            if self.reclassification.defer_release(namespace, id) {
                continue;
            }
            let Some(release) = self.cluster.address(id) else { continue };
            releases.push(release);
            self.releases.begin(namespace, uid);
        }
        releases
    }

    /// Queues the removal of the pod's gate.
    pub(super) fn enqueue_release(&mut self, id: PodId) {
        if let Some(record) = self.cluster.pods.get(id) {
            self.releases.enqueue(record.namespace, id);
        }
    }

    fn is_to_be_released(&self, id: PodId) -> bool {
        let is_in_flight = |record: &PodRecord| self.releases.is_in_flight(&record.uid);
        self.stages.may_be_released(id) && !self.cluster.pods.get(id).is_some_and(is_in_flight)
    }

    pub(super) fn on_released(&mut self, id: PodId, uid: &Uid, answer: Answer<PodWire>, now: Moment) {
        if let Answer::Done(_) | Answer::Unknown(_) = answer {
            let is_slow = matches!(answer, Answer::Unknown(_));
            self.releases.note_speed(uid, is_slow, &self.cluster.namespaces);
        }
        let Some(namespace) =
            self.cluster.pods.get(id).filter(|record| record.uid == *uid).map(|it| it.namespace)
        else {
            return self.releases.answered(uid);
        };
        if let Answer::Done(wire) = answer {
            // While the request is in flight this is known to be the own release.
            self.see_pod(&wire, Source::Answer, now);
            return self.releases.answered(uid);
        }
        self.releases.answered(uid);
        match answer {
            Answer::Done(_) => {}
            Answer::Stale(Some(wire)) => {
                self.see_pod(&wire, Source::Answer, now);
                let record = self.cluster.pods.get(id).filter(|record| record.uid == *uid).cloned();
                let Some(record) = record else { return };
                if matches!(self.stages.get(id), Stage::Assumed { .. }) && self.is_decided_as(id, &record) {
                    // Another version of what was decided on and is recorded.
                    self.releases.repeat_changed(namespace, id, now);
                } else {
                    self.give_up_release(id, 0, now);
                }
            }
            Answer::Stale(None) => self.forget_pod(id),
            Answer::Refused(why) => {
                self.releases.refused(id, why);
                let is_owned = self.stages.owners().owner_of(id).is_some();
                // In doubt, another leader may be releasing it too.
                if self.releases.is_worked_on(id, now) || is_owned && self.stages.is_doubted() {
                    self.repeat_release_later(id, None, now);
                } else {
                    self.give_up_release(id, 1, now);
                }
                self.events.news(id, now);
            }
            Answer::Busy(after) => self.repeat_release_later(id, after, now),
            Answer::Unknown(_) => {
                let until_ms = now.mono_ms + self.cluster.config.in_flight_grace_ms.max(REQUEST_TIME_MS);
                let version = self.cluster.pods.get(id).map(|record| record.version).unwrap_or_default();
                self.releases.outcome_unknown(id, version, until_ms);
                self.repeat_release_later(id, None, now);
            }
        }
    }

    /// The release may have been done, so it stays charged and is requested again.
    fn repeat_release_later(&mut self, id: PodId, after: Option<Duration>, now: Moment) {
        let Some(record) = self.cluster.pods.get(id).cloned() else { return };
        if self.is_decided_as(id, &record) {
            self.releases.repeat_later(id, after, now);
        } else {
            self.revert_claim(id, &record);
            self.classify(id, now);
        }
    }

    /// Whether the pod still is what was decided on. If not, requests that may be in flight ask for a version of
    /// it that is no more.
    fn is_decided_as(&mut self, id: PodId, record: &PodRecord) -> bool {
        let matching = self.matching_quotas(record.namespace, &record.scope_facts);
        let price = self.price(id, record);
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
                record.unreadable.is_none() && is_same && is_about
            }
            _ => true,
        }
    }

    /// The release was certainly not done: reverts the charge and decides again, later each time. With `from` 0 the first
    /// retry comes at once.
    fn give_up_release(&mut self, id: PodId, from: u32, now: Moment) {
        if !matches!(self.stages.get(id), Stage::Assumed { .. } | Stage::Free { .. }) {
            return;
        }
        self.releases.back_off(id, from, now);
        let Some(record) = self.cluster.pods.get(id).cloned() else { return };
        self.revert_claim(id, &record);
        self.classify(id, now);
        self.stats.reverted += 1;
    }

    /// The time has come to decide again on a pod whose release failed, or to repeat the request. Pods whose namespace was
    /// unknown need none: [`Self::apply_namespace`] looks at them.
    pub(super) fn retry_release(&mut self, id: PodId, now: Moment) {
        if matches!(self.stages.get(id), Stage::Stuck(Stuck::BackingOff))
            && let Some(record) = self.cluster.pods.get(id).cloned()
        {
            self.end_claim(id, &record);
            self.classify(id, now);
        }
        // Outcome unknown: retry; the patch's tests make that safe.
        if self.is_to_be_released(id) {
            self.enqueue_release(id);
        }
    }
}
