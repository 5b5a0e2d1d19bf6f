//! From the state to the actions: whom to release, what to record, what to tell.

use std::ops::Bound;
use std::sync::Arc;

use sluice_engine::{Decision, PodId, QuotaId, StatusTarget, status_target};
use sluice_index::Recorded;

use super::action::{Action, Record, Release};
use super::config::Moment;
use super::stage::Stage;
use super::state::{InFlight, State};

/// How many classes of waiting pods are looked at before others get at the state: about half a millisecond's work.
const LOOKS: usize = 256;
/// Gates that are being removed at a time: enough for every connection, and few enough that a mass release costs no more
/// memory than a small one.
const RELEASES: usize = 256;
/// Statuses that are being written at a time.
const RECORDS: usize = 256;

impl State {
    /// Decides, and says what is to be done now. Does nothing but look until [`State::lead`] was called.
    pub fn plan(&mut self, now: Moment) -> Vec<Action> {
        self.pass_time(now);
        self.go_on_restaging(now);
        if !self.leading {
            self.to_release.clear();
            return Vec::new();
        }
        let mut actions = Vec::new();
        self.decide(now);
        actions.extend(self.plan_records(now).into_iter().map(Action::Record));
        actions.extend(self.plan_releases().into_iter().map(Action::Release));
        actions.extend(self.plan_checks(now));
        actions.extend(self.plan_catching_up());
        actions.extend(self.plan_reads(now).into_iter().map(Action::Read));
        let answers = self.admissions.take_answers();
        actions.extend(answers.into_iter().map(|(ticket, judgement)| Action::Answer(ticket, judgement)));
        actions.extend(self.plan_tells(now).into_iter().map(Action::Tell));
        actions
    }

    /// When [`State::plan`] has something to do even if nothing is seen: milliseconds from `now`.
    #[must_use]
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        let has_more = !self.dirty.is_empty() && self.recording < RECORDS
            || !self.to_release.is_empty() && self.releasing.len() < RELEASES;
        if self.leading && (has_more || self.queue.has_news()) || !self.restaging.is_over() {
            return Some(0);
        }
        let overdue = self.pods.next_overdue().map(|at| {
            now.mono_ms + u64::try_from(at.saturating_sub(now.unix_s())).unwrap_or(0).saturating_mul(1000)
        });
        let later = [
            self.quota_later.first().map(|(at, _)| *at),
            self.pod_later.first().map(|(at, _)| *at),
            self.check_later.first().map(|(at, _)| *at),
            self.telling.next_due_ms(now).filter(|_| self.leading),
            overdue,
        ];
        later.into_iter().flatten().min().map(|at| at.saturating_sub(now.mono_ms))
    }

    fn pass_time(&mut self, now: Moment) {
        for id in self.pods.take_overdue(now.unix_s()) {
            let Some(record) = self.pods.get(id).cloned() else { continue };
            self.unstage(id, &record);
            self.restage(id, now);
        }
        while let Some((at, id)) = self.quota_later.first().copied().filter(|(at, _)| *at <= now.mono_ms) {
            self.quota_later.remove(&(at, id));
            let honoured = self.writings.get_mut(&id).and_then(|writing| {
                let ended = writing.honoured_until_ms.filter(|until| *until <= now.mono_ms);
                if ended.is_some() {
                    writing.honoured_until_ms = None;
                }
                ended
            });
            if honoured.is_some() {
                self.end_honouring(id);
            }
            self.dirty.insert(id);
        }
        while let Some((at, id)) = self.pod_later.first().copied().filter(|(at, _)| *at <= now.mono_ms) {
            self.pod_later.remove(&(at, id));
            self.retry_pod(id, now);
            self.expire_admission(id, now);
            // A release of which it is not known whether it was done is simply asked for again.
            if self.is_to_be_released(id) {
                self.to_release.push_back(id);
            }
        }
        while let Some((at, id)) = self.check_later.first().copied().filter(|(at, _)| *at <= now.mono_ms) {
            self.check_later.remove(&(at, id));
            self.to_check.insert(id);
        }
    }

    fn decide(&mut self, now: Moment) {
        // The wait of a pod that is older than this process begins when this process first sees the pod.
        let impatient_since_ms = now.mono_ms.checked_sub(self.config.patience_ms);
        for decision in self.queue.decide(impatient_since_ms, LOOKS) {
            match decision {
                Decision::Release { pod, charge, quotas } => {
                    self.next_serial += 1;
                    let serial = self.next_serial;
                    for quota in quotas.iter() {
                        self.writings.entry(*quota).or_default().pending.push((pod, serial));
                        self.dirty.insert(*quota);
                    }
                    let awaited = u32::try_from(quotas.len()).unwrap_or(u32::MAX);
                    self.set_stage(pod, Stage::Assumed { charge, quotas, awaited, serial });
                }
                Decision::Held(class) => self.class_has_news(class, now),
            }
        }
    }

    /// The writes that statuses need now: of some of the quotas that may need one, in turn.
    fn plan_records(&mut self, now: Moment) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..LOOKS {
            if self.recording >= RECORDS {
                break;
            }
            let after = (Bound::Excluded(self.looked_at), Bound::Unbounded);
            let next = self.dirty.range(after).next().or_else(|| self.dirty.first()).copied();
            let Some(id) = next else { break };
            self.looked_at = id;
            self.dirty.remove(&id);
            if let Some(record) = self.plan_record(id, now) {
                self.recording += 1;
                records.push(record);
            }
        }
        records
    }

    /// The write that a quota's status needs now, if any.
    fn plan_record(&mut self, id: QuotaId, now: Moment) -> Option<Record> {
        let quota = self.quotas.get(id)?;
        let target = status_target(self.summed(id)?, self.queue.ledger(id)?);
        let held = i64::try_from(self.queue.held(id)).unwrap_or(i64::MAX);
        let writing = self.writings.entry(id).or_default();
        if writing.in_flight.is_some() {
            return None;
        }
        // Even a charge that changes no sum is written: only a write that succeeds proves that no other
        // leader has charged meanwhile.
        let complete = records(&quota.recorded, &target) && shows(&quota.recorded, &target, held);
        if complete && writing.pending.is_empty() {
            return None;
        }
        let spacing = if !writing.pending.is_empty() {
            self.config.charge_spacing_ms.max(writing.contest.charge_delay_ms(now))
        } else {
            self.config.status_spacing_ms.max(writing.contest.delay_ms(now))
        };
        let due = writing.last_ms.map_or(0, |last| last + spacing).max(writing.not_before_ms);
        if due > now.mono_ms {
            self.quota_later.insert((due, id));
            return None;
        }
        writing.last_ms = Some(now.mono_ms);
        let charged = std::mem::take(&mut writing.pending);
        let charges = self.stamp.after(quota.recorded.charges, charged.len());
        writing.in_flight = Some(InFlight { charged, overtaken: false });
        Some(Record {
            quota: id,
            namespace: Arc::clone(&self.namespaces.get(quota.namespace)?.name),
            name: Arc::clone(&quota.name),
            uid: quota.uid.clone(),
            version: quota.version,
            target,
            held,
            charges,
            uncounted_since: quota
                .recorded
                .uncounted
                .as_ref()
                .map_or_else(|| now.unix_s(), |told| told.since),
        })
    }

    /// The charges of these decisions are recorded by one more quota.
    pub(super) fn charge_is_recorded(&mut self, charged: Vec<(PodId, u64)>) {
        for (pod, decision) in charged {
            match self.stages.get_mut(pod.0 as usize) {
                Some(Stage::Assumed { awaited, serial, .. }) if *serial == decision => {
                    *awaited = awaited.saturating_sub(1);
                    if *awaited == 0 {
                        self.to_release.push_back(pod);
                    }
                }
                _ => self.admission_is_recorded(pod, decision),
            }
        }
    }

    pub(super) fn is_to_be_released(&self, id: PodId) -> bool {
        matches!(self.stage(id), Stage::Assumed { awaited: 0, .. } | Stage::Free { cleared: true })
            && !self.releasing.contains(&id)
    }

    fn plan_releases(&mut self) -> Vec<Release> {
        let mut releases = Vec::new();
        while self.releasing.len() < RELEASES {
            let Some(id) = self.to_release.pop_front() else { break };
            if !self.is_to_be_released(id) {
                continue;
            }
            let namespace = self.pods.get(id).map(|pod| pod.namespace);
            if namespace.is_some_and(|namespace| self.restaging.holds_back(namespace, id)) {
                continue;
            }
            let Some(release) = self.address(id) else { continue };
            releases.push(release);
            self.releasing.insert(id);
        }
        releases
    }

    /// The pod as requests speak of it.
    pub(super) fn address(&self, id: PodId) -> Option<Release> {
        let record = self.pods.get(id)?;
        Some(Release {
            pod: id,
            namespace: Arc::clone(&self.namespaces.get(record.namespace)?.name),
            name: record.name.clone(),
            uid: record.uid.clone(),
            version: record.version,
        })
    }

    /// A pod that no known quota is about may have been created right after a quota that was not seen yet: the
    /// two come by different watches. So the quotas are read once more before such pods go.
    fn plan_checks(&mut self, now: Moment) -> Vec<Action> {
        let mut checks = Vec::new();
        for id in std::mem::take(&mut self.to_check) {
            if self.checking.contains_key(&id) {
                // The answer that is under way may be older than these pods; they are checked after it.
                continue;
            }
            if self.check_failures.get(&id).is_some_and(|(_, until)| now.mono_ms < *until) {
                // Its time is in `check_later`.
                continue;
            }
            if self.restaging.rests(id) {
                // It is checked when that is over.
                continue;
            }
            let Some(namespace) = self.namespaces.get(id) else {
                self.check_failures.remove(&id);
                continue;
            };
            let free: Vec<_> = namespace
                .pods()
                .iter()
                .filter(|pod| matches!(self.stage(**pod), Stage::Free { cleared: false }))
                .filter_map(|pod| Some((*pod, self.pods.get(*pod)?.uid.clone())))
                .collect();
            if free.is_empty() {
                self.check_failures.remove(&id);
                continue;
            }
            checks.push(Action::ListQuotas(id, Arc::clone(&namespace.name)));
            self.checking.insert(id, free);
        }
        checks
    }
}

/// Whether the status holds what the target holds, as numbers.
pub(super) fn records(recorded: &Recorded, target: &StatusTarget) -> bool {
    recorded.hard.are(&target.hard) && recorded.used.are(&target.used)
}

/// Whether people are shown what they should be.
pub(super) fn shows(recorded: &Recorded, target: &StatusTarget, held: i64) -> bool {
    recorded.held.unwrap_or(0) == held
        && recorded.requests.as_deref().unwrap_or_default() == target.requests
        && recorded.limits.as_deref().unwrap_or_default() == target.limits
        && recorded.uncounted.as_ref().map_or("", |told| &told.message) == target.uncounted
}
