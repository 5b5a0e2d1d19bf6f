//! Writes of quotas' status, and their answers. A charge is recorded with one before the gate is removed.

use sluice_engine::{QuotaId, StatusTarget, Uid};
use sluice_index::{QuotaRecord, Source, Told, Version};

use super::State;
use super::quotas::version;
use crate::action::{Answer, Record, RecordedIn, RecordedObject};
use crate::config::Moment;
use crate::explain::HeldTold;
use crate::parts::status_writes::InFlight;

/// Quotas that are looked at before others get at the state.
const LOOKS: usize = 256;
/// The least time after a write before one that only tells something else of the pods that wait (milliseconds).
const HELD_SPACING_MS: u64 = 10_000;

impl State {
    /// The writes that statuses need now: of some of the quotas that may need one, in turn.
    pub(super) fn plan_records(&mut self, now: Moment) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..LOOKS {
            let Some(id) = self.writes.next() else { break };
            records.extend(self.plan_record(id, now));
        }
        records
    }

    /// Every quota has something else to say, whatever is charged to it.
    pub fn restate_quotas(&mut self) {
        let quotas: Vec<QuotaId> = self.cluster.quotas.iter().map(|(id, _)| id).collect();
        let is_of_cluster =
            |id: &QuotaId| self.cluster.quotas.get(*id).is_some_and(|quota| quota.cluster().is_some());
        let (clusters, others): (Vec<_>, Vec<_>) = quotas.into_iter().partition(is_of_cluster);
        clusters.into_iter().for_each(|id| self.cluster.quotas.note_changed_cluster(id));
        self.writes.mark_all(&others);
    }

    /// The write that a quota's record needs now, if any.
    fn plan_record(&mut self, id: QuotaId, now: Moment) -> Option<Record> {
        if self.writes.is_in_flight(id) {
            // Its answer, or the timer that a failure sets, marks the quota again.
            return None;
        }
        let quota = self.cluster.quotas.get(id)?;
        let name = self.cluster.quota_ref(id)?;
        let target = self.accounts.record_of(&self.cluster, id)?;
        let held = self.accounts.held_by(id);
        let object = recorded_in(quota);
        let unenforced = quota.recorded.unenforced.as_deref();
        let unenforced_reason = target.unenforced.as_ref().map(|told| told.reason);
        self.contests.unenforced(id, unenforced_reason, unenforced.map(|told| &*told.reason));
        // Even a charge that changes no sum is written: only a write that succeeds proves that no other
        // leader has charged meanwhile.
        let is_charge = self.writes.has_pending(id);
        let is_new = matches!(object, RecordedIn::NewCharge { .. });
        let held_told = self.accounts.held_told(&self.cluster, id);
        let is_right = !is_charge && !is_new && says(quota, &target, held);
        if is_right && tells_of_held(quota, held_told.as_ref()) {
            return None;
        }
        let spacing_ms = if is_charge {
            self.cluster.config.charge_spacing_ms.max(self.contests.charge_delay_ms(id, now))
        } else if is_right {
            HELD_SPACING_MS
        } else {
            self.cluster.config.status_spacing_ms.max(self.contests.delay_ms(id, now))
        };
        let charged = if is_new {
            self.writes.begin_without_charge(id, spacing_ms, now).then_some(0)
        } else {
            self.writes.begin(id, spacing_ms, now)
        };
        let uncounted = quota.recorded.uncounted.as_ref();
        let machines = quota.recorded.machines.zip(target.machines);
        let machines_since = machines.and_then(|(told, calculator)| told.since_as(calculator));
        let record = Record {
            quota: id,
            name,
            uid: quota.uid.clone(),
            object,
            target,
            held,
            held_told,
            held_told_since: quota
                .recorded
                .pods_held
                .as_ref()
                .map_or_else(|| now.unix_s(), |told| told.since),
            charges: self.writes.charges_after(quota.recorded.charges, charged?),
            uncounted_since: uncounted.map_or_else(|| now.unix_s(), |told| told.since),
            machines_since: machines_since.unwrap_or_else(|| now.unix_s()),
            unenforced_since: unenforced.map_or_else(|| now.unix_s(), |told| told.since),
        };
        // Another client may take it out of the status again and again, and a write may be repeated.
        let is_news = unenforced_reason.is_some_and(|reason| self.contests.is_unenforced_news(id, reason));
        self.writes.ask(&record);
        if is_news {
            self.announce_unenforced(&record);
        }
        Some(record)
    }

    pub(super) fn on_recorded(
        &mut self,
        id: QuotaId,
        uid: &Uid,
        answer: Answer<RecordedObject>,
        now: Moment,
    ) {
        self.writes.end_request(id);
        if self.cluster.quotas.get(id).is_none_or(|quota| quota.uid != *uid) {
            return;
        }
        let Some(InFlight { charged, overtaken, asked }) = self.writes.answered(id) else { return };
        // What was in this answer may be what has been seen to end since it was asked for,
        // and will not be seen to end again.
        let cluster = self.cluster.quotas.get(id).and_then(|quota| quota.cluster());
        let may_be_gone = overtaken && cluster.is_some_and(|cluster| cluster.charge.is_none());
        match answer {
            Answer::Done(object) => {
                self.writes.reset_failures(id);
                let confirmed = match object {
                    RecordedObject::Quota(wire) => {
                        self.cluster.quotas.upsert(&wire, Source::Answer, &mut self.cluster.namespaces);
                        self.confirmations.recorded(version(&wire), charged)
                    }
                    RecordedObject::Charge(wire) => {
                        if !may_be_gone {
                            self.cluster.quotas.upsert_charge(&wire, Source::Answer);
                        }
                        charged
                    }
                };
                self.accounts.on_charges_confirmed(&self.cluster, confirmed);
                if let Some(asked) = asked.filter(|asked| !may_be_gone && !self.is_as_written(asked)) {
                    self.on_status_not_kept(asked.quota, now);
                }
                self.writes.mark(id);
            }
            Answer::Stale(object) => {
                let is_failure =
                    object.as_ref().zip(asked).is_some_and(|(now, asked)| is_no_news(now, &asked));
                // The limits may be others now: whatever was not charged is decided on again.
                let mut undone = charged;
                undone.append(&mut self.writes.take_pending(id));
                self.accounts.revert_decisions(&self.cluster, &undone, now);
                self.carry_out();
                match object {
                    Some(RecordedObject::Quota(wire)) => self.see_quota(&wire, Source::Answer, now),
                    Some(RecordedObject::Charge(_)) if may_be_gone => {}
                    Some(RecordedObject::Charge(wire)) => self.see_charge(&wire, Source::Answer, now),
                    None => self.on_record_gone(id, now),
                }
                if is_failure {
                    self.writes.retry_later(id, Vec::new(), None, now);
                } else {
                    self.writes.reset_failures(id);
                    self.writes.mark(id);
                }
            }
            failed => {
                let after = if let Answer::Busy(after) = failed { after } else { None };
                let again = if overtaken {
                    self.accounts.revert_decisions(&self.cluster, &charged, now);
                    self.carry_out();
                    Vec::new()
                } else {
                    charged
                };
                self.writes.retry_later(id, again, after, now);
            }
        }
    }

    /// The object that records the charges does not exist: a quota of a namespace has gone with it.
    fn on_record_gone(&mut self, id: QuotaId, now: Moment) {
        let Some(quota) = self.cluster.quotas.get(id) else { return };
        if quota.namespace().is_some() {
            return self.forget_quota(id, now);
        }
        let uid = quota.uid.clone();
        if self.cluster.quotas.remove_charge(&uid).is_some() {
            self.on_charge_lost(id, now);
        }
    }

    /// Whether the quota's record is what was asked for. What is created records nothing.
    fn is_as_written(&self, asked: &Record) -> bool {
        let quota = self
            .cluster
            .quotas
            .get(asked.quota)
            .filter(|_| !matches!(asked.object, RecordedIn::NewCharge { .. }));
        quota.is_none_or(|quota| says(quota, &asked.target, asked.held))
    }

    /// Whether the status says what it should; that of a quota whose sums are not complete may say anything.
    pub(super) fn is_status_right(&self, id: QuotaId) -> bool {
        let Some(quota) = self.cluster.quotas.get(id) else { return true };
        let Some(target) = self.accounts.record_of(&self.cluster, id) else { return true };
        says(quota, &target, self.accounts.held_by(id))
    }
}

/// Whether the record holds the numbers and the texts of the target. The charge of a cluster quota has no texts.
fn says(quota: &QuotaRecord, target: &StatusTarget, held: i64) -> bool {
    let recorded = &quota.recorded;
    let are_numbers_right = recorded.hard.are(&target.hard) && recorded.used.are(&target.used);
    if quota.cluster().is_some() {
        return are_numbers_right;
    }
    are_numbers_right
        && recorded.held.unwrap_or(0) == held
        && recorded.requests.as_deref().unwrap_or_default() == target.requests
        && recorded.limits.as_deref().unwrap_or_default() == target.limits
        && recorded.uncounted.as_ref().map_or("", |told| &told.message) == target.uncounted
        && recorded.machines.map(|told| told.calculator) == target.machines.map(Some)
        && is_unenforced_said(recorded.unenforced.as_deref(), target)
}

/// Whether the status tells this of the pods that wait. It may be late with that, so that another text is no sign of
/// another client.
fn tells_of_held(quota: &QuotaRecord, told: Option<&HeldTold>) -> bool {
    let recorded = &quota.recorded;
    quota.cluster().is_some()
        || recorded.held_since == told.map(|told| told.since)
            && recorded.pods_held.as_ref().map(|said| &*said.message) == told.map(|told| &*told.message)
}

fn is_unenforced_said(recorded: Option<&Told>, target: &StatusTarget) -> bool {
    let recorded = recorded.map(|told| (&*told.reason, &*told.message));
    recorded == target.unenforced.as_ref().map(|told| (told.reason, &*told.message))
}

/// Whether a write was refused although the object is no newer than what it was based on: as it is after a store was
/// restored from a backup. What is known is not put right by such an answer, and the next write would be refused as well.
fn is_no_news(now: &RecordedObject, asked: &Record) -> bool {
    match (now, &asked.object) {
        (RecordedObject::Quota(wire), RecordedIn::Status(based_on)) => {
            version(wire).is_no_later_than(*based_on)
        }
        (RecordedObject::Charge(wire), RecordedIn::Charge(based_on)) => {
            Version::parse(wire.metadata.resource_version.as_deref()).is_no_later_than(based_on.version)
        }
        _ => false,
    }
}

fn recorded_in(quota: &QuotaRecord) -> RecordedIn {
    match quota.cluster() {
        None => RecordedIn::Status(quota.version),
        Some(cluster) => match &cluster.charge {
            Some(object) => RecordedIn::Charge(object.clone()),
            None => RecordedIn::NewCharge { is_shown: cluster.is_shown },
        },
    }
}
