//! What became of an action changes the state.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_engine::{PodId, QuotaId, Uid};
use sluice_index::{NamespaceId, PodRecord, PodWire, QuotaWire};

use super::action::{Answer, Outcome};
use super::config::Moment;
use super::stage::{Stage, backoff_ms};
use super::state::{InFlight, State};

/// After the first failure a request is tried again this much later (milliseconds).
const FIRST_RETRY_MS: u64 = 100;

/// So long may an API server work on a request (`--request-timeout`, by default).
const REQUEST_TIME_MS: u64 = 60_000;

impl State {
    /// Takes note of what became of an action.
    pub fn settle(&mut self, outcome: Outcome, now: Moment) {
        match outcome {
            Outcome::Recorded(quota, uid, answer) => self.settle_record(quota, &uid, answer, now),
            Outcome::Released(pod, uid, answer) => self.settle_release(pod, &uid, answer, now),
            Outcome::Listed(namespace, answer) => self.settle_check(namespace, answer, now),
            Outcome::Read(pod, uid, answer) => self.settle_read(pod, &uid, answer, now),
            Outcome::Told(tell, is_written) => self.settle_tell(tell, is_written, now),
            Outcome::CaughtUp => self.settle_catching_up(),
        }
    }

    fn settle_record(&mut self, id: QuotaId, uid: &Uid, answer: Answer<QuotaWire>, now: Moment) {
        self.recording = self.recording.saturating_sub(1);
        if self.quotas.get(id).is_none_or(|quota| quota.uid != *uid) {
            return;
        }
        let Some(writing) = self.writings.get_mut(&id) else { return };
        let Some(InFlight { charged, overtaken }) = writing.in_flight.take() else { return };
        match answer {
            Answer::Done(wire) => {
                writing.failures = 0;
                self.quotas.upsert(&wire, &mut self.namespaces);
                self.charge_is_recorded_in(&wire, charged);
                self.dirty.insert(id);
            }
            Answer::Stale(wire) => {
                writing.failures = 0;
                // The limits may be others now: whatever was not charged is decided on again.
                let mut undone = charged;
                undone.append(&mut writing.pending);
                self.take_back(&undone, now);
                match wire {
                    Some(wire) => self.see_quota(&wire, now),
                    None => self.forget_quota(id, now),
                }
                self.dirty.insert(id);
            }
            failed => {
                let after = if let Answer::Busy(after) = failed { after } else { None };
                if overtaken {
                    self.take_back(&charged, now);
                    self.record_later(id, Vec::new(), after, now);
                } else {
                    // If it was done after all, the record tells by its stamp whose it is.
                    self.record_later(id, charged, after, now);
                }
            }
        }
    }

    fn record_later(
        &mut self,
        id: QuotaId,
        mut charged: Vec<(PodId, u64)>,
        after: Option<Duration>,
        now: Moment,
    ) {
        let Some(writing) = self.writings.get_mut(&id) else { return };
        charged.append(&mut writing.pending);
        writing.pending = charged;
        writing.failures += 1;
        let wait = delay_ms(after, writing.failures);
        writing.not_before_ms = now.mono_ms + wait;
        self.quota_later.insert((now.mono_ms + wait, id));
    }

    /// The quota is not what it was when its last charges were decided on: takes back those that are not
    /// recorded. Those that are being recorded cannot be called back, but if that fails they are not tried again.
    pub(super) fn decide_anew(&mut self, id: QuotaId, now: Moment) {
        let Some(writing) = self.writings.get_mut(&id) else { return };
        if let Some(write) = &mut writing.in_flight {
            write.overtaken = true;
        }
        let undone = std::mem::take(&mut writing.pending);
        self.take_back(&undone, now);
    }

    /// Takes back decisions that are not recorded by all their quotas.
    pub(super) fn take_back(&mut self, decisions: &[(PodId, u64)], now: Moment) {
        if decisions.len() > self.config.restaged_pods {
            return self.take_back_later(decisions, now);
        }
        for (pod, decision) in decisions {
            self.take_back_admission(*pod, *decision);
            // A pod that is being released although its charge is not recorded went before there was a quota.
            let Stage::Assumed { serial, awaited: 1.., .. } = self.stage(*pod) else { continue };
            if serial != decision {
                continue;
            }
            let Some(record) = self.pods.get(*pod).cloned() else { continue };
            self.lift(*pod, &record);
            self.restage(*pod, now);
            self.stats.reverted += 1;
        }
    }

    fn take_back_later(&mut self, decisions: &[(PodId, u64)], now: Moment) {
        let mut pods: BTreeMap<NamespaceId, Vec<PodId>> = BTreeMap::new();
        for (pod, decision) in decisions {
            let is_undone =
                matches!(self.stage(*pod), Stage::Assumed { serial, awaited: 1.., .. } if serial == decision);
            if let Some(record) = self.pods.get(*pod) {
                let pods = pods.entry(record.namespace).or_default();
                pods.extend(is_undone.then_some(*pod));
            }
        }
        for (namespace, pods) in pods {
            self.stats.reverted += pods.len() as u64;
            // Growth that is being admitted in these namespaces is taken back too.
            self.restage_later(namespace, pods);
        }
        self.go_on_restaging(now);
    }

    fn settle_release(&mut self, id: PodId, uid: &Uid, answer: Answer<PodWire>, now: Moment) {
        if self.pods.get(id).is_none_or(|record| record.uid != *uid) {
            return;
        }
        if let Answer::Done(wire) = answer {
            // What is seen now is our own release.
            self.see_pod(&wire, now);
            self.releasing.remove(&id);
            return;
        }
        self.releasing.remove(&id);
        match answer {
            Answer::Done(_) => {}
            Answer::Stale(Some(wire)) => {
                self.see_pod(&wire, now);
                // Not the version that was decided on: decide on this one. The first time at once.
                if self.pods.get(id).is_some_and(|record| record.uid == *uid) {
                    self.give_up_release(id, now, 0);
                }
            }
            Answer::Stale(None) => self.forget_pod(id),
            Answer::Refused(why) => {
                self.troubles.entry(id).or_default().refusal = Some(why.into());
                if self.troubles.get(&id).is_some_and(|trouble| trouble.is_uncertain(now.mono_ms)) {
                    self.release_later(id, None, now);
                } else {
                    self.give_up_release(id, now, 1);
                }
                self.telling.news(id, now);
            }
            Answer::Busy(after) => self.release_later(id, after, now),
            Answer::Unknown(_) => {
                let until = now.mono_ms + self.config.in_flight_grace_ms.max(REQUEST_TIME_MS);
                self.troubles.entry(id).or_default().uncertain_until_ms = until;
                self.release_later(id, None, now);
            }
        }
    }

    /// The release may have been done, so it stays charged and is asked for again.
    fn release_later(&mut self, id: PodId, after: Option<Duration>, now: Moment) {
        let Some(record) = self.pods.get(id).cloned() else { return };
        if !self.is_decided_as(id, &record) {
            self.lift(id, &record);
            self.restage(id, now);
            return;
        }
        let trouble = self.troubles.entry(id).or_default();
        trouble.failures += 1;
        let wait = delay_ms(after, trouble.failures);
        self.pod_later.insert((now.mono_ms + wait, id));
    }

    /// Whether the pod still is what was decided on. If not, requests that may be under way ask for a version of
    /// it that is no more.
    fn is_decided_as(&mut self, id: PodId, record: &PodRecord) -> bool {
        let now = self.matching_quotas(record.namespace, &record.scope_facts);
        match self.stage(id) {
            Stage::Assumed { charge, quotas, .. } => {
                // The quotas may have changed instead.
                let is_about = now == *quotas || self.restaging.awaits(record.namespace, id);
                record.unreadable.is_none() && record.charge == *charge && is_about
            }
            _ => true,
        }
    }

    /// The release was certainly not done: takes the charge back and decides again, later each time. With
    /// `from` 0 the first retry comes at once.
    fn give_up_release(&mut self, id: PodId, now: Moment, from: u32) {
        if !matches!(self.stage(id), Stage::Assumed { .. } | Stage::Free { .. }) {
            return;
        }
        let trouble = self.troubles.entry(id).or_default();
        trouble.uncertain_until_ms = 0;
        trouble.failures += 1;
        let steps = (trouble.failures + from).saturating_sub(1);
        if steps > 0 {
            trouble.until_ms = now.mono_ms + backoff_ms(FIRST_RETRY_MS, steps);
            self.pod_later.insert((trouble.until_ms, id));
        }
        let Some(record) = self.pods.get(id).cloned() else { return };
        self.lift(id, &record);
        self.restage(id, now);
        self.stats.reverted += 1;
    }

    fn settle_check(&mut self, id: NamespaceId, answer: Answer<Vec<QuotaWire>>, now: Moment) {
        let Some(checked) = self.checking.remove(&id) else { return };
        match answer {
            Answer::Done(quotas) => {
                self.check_failures.remove(&id);
                for quota in &quotas {
                    self.see_quota(quota, now);
                }
                for (pod, uid) in checked {
                    let same = self.pods.get(pod).is_some_and(|record| record.uid == uid);
                    if same && matches!(self.stage(pod), Stage::Free { cleared: false }) {
                        self.set_stage(pod, Stage::Free { cleared: true });
                        self.to_release.push_back(pod);
                    }
                }
                // Pods that came after the question was asked.
                self.to_check.insert(id);
            }
            failed => {
                let after = if let Answer::Busy(after) = failed { after } else { None };
                let (failures, until) = self.check_failures.entry(id).or_default();
                *failures += 1;
                *until = now.mono_ms + delay_ms(after, *failures);
                self.check_later.insert((*until, id));
            }
        }
    }
}

fn delay_ms(after: Option<Duration>, failures: u32) -> u64 {
    after
        .and_then(|after| u64::try_from(after.as_millis()).ok())
        .map_or_else(|| backoff_ms(FIRST_RETRY_MS, failures), |after| after.clamp(1, 60_000))
}
