//! Others that do what is this controller's to do: write the status of quotas, remove its gates. It is noticed, told with
//! the name of the writer, and answered ever more slowly, so that two writers do not drive each other.

use sluice_api::names;
use sluice_engine::QuotaId;
use sluice_index::{PodRecord, QuotaWire};

use super::action::{About, Tell};
use super::config::Moment;
use super::message::reasons;
use super::plan::{records, shows};
use super::stage::backoff_ms;
use super::state::State;

/// After so many times it is a contest: a status that was edited once by hand is put right at once.
const TOLERATED: u32 = 3;
/// The first time after that, a write comes so much later, then each time twice that (milliseconds).
const FIRST_DELAY_MS: u64 = 200;
/// A contest that has rested for so long is over (milliseconds).
const OVER_MS: u64 = 600_000;
/// A write that a release waits for is put off by no more than this (milliseconds).
const CHARGE_AT_MOST_MS: u64 = 1_000;
/// The field manager of application-aware-quota's own controller: its binary, or its image's name for it.
const UPSTREAM: [&str; 2] = ["aaq-controller", "aaq_controller"];

/// How often another has done it.
#[derive(Debug, Default)]
pub(super) struct Contest {
    times: u32,
    last_ms: u64,
}

impl Contest {
    /// It was done once more.
    fn note(&mut self, now_ms: u64) {
        if self.is_over(now_ms) {
            self.times = 0;
        }
        self.times = self.times.saturating_add(1);
        self.last_ms = now_ms;
    }

    /// The least time between two writes that nothing waits for (milliseconds).
    pub fn delay_ms(&self, now: Moment) -> u64 {
        match self.times.saturating_sub(TOLERATED) {
            over if over > 0 && !self.is_over(now.mono_ms) => backoff_ms(FIRST_DELAY_MS, over),
            _ => 0,
        }
    }

    /// The least time between two writes that a release waits for (milliseconds).
    pub fn charge_delay_ms(&self, now: Moment) -> u64 {
        self.delay_ms(now).min(CHARGE_AT_MOST_MS)
    }

    fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_ms) > OVER_MS
    }

    /// Seldom: from `first` times on at each power of two.
    fn is_told(&self, first: u32) -> bool {
        self.times == first || (self.times > first && self.times.is_power_of_two())
    }
}

impl State {
    /// The status of a quota was written by another.
    pub(super) fn heed_overwriting(&mut self, id: QuotaId, wire: &QuotaWire, now: Moment) {
        if !self.leading || self.is_as_wanted(id) {
            return;
        }
        let Some(writing) = self.writings.get_mut(&id) else { return };
        // Once per write of ours, and not while one is under way: that may be what was seen.
        let is_answered = writing.in_flight.is_none() && writing.failures == 0;
        let Some(last_ms) = writing.last_ms.filter(|last| is_answered && *last >= writing.contest.last_ms)
        else {
            return;
        };
        writing.contest.note(now.mono_ms.max(last_ms + 1));
        self.stats.overwritten += 1;
        let contest = &writing.contest;
        if !contest.is_told(TOLERATED) {
            return;
        }
        let by = match other_writer(wire) {
            Some(manager) if UPSTREAM.contains(&manager) => {
                format!("{manager}, the controller of application-aware-quota: one of the two has to go")
            }
            Some(manager) => manager.to_owned(),
            None => "a client that is not known".to_owned(),
        };
        let message = format!(
            "the status is written by another: {by}; while that goes on it is corrected ever more slowly, once a minute at last"
        );
        self.tell_of_quota(id, reasons::STATUS_CONTESTED, message);
    }

    /// Another removed the gate of a pod that waited for room.
    pub(super) fn heed_foreign_release(&mut self, record: &PodRecord, quotas: &[QuotaId], now: Moment) {
        // A predecessor may have released it.
        let is_honoured = |id: &QuotaId| {
            self.writings.get(id).is_some_and(|writing| writing.honoured_until_ms.is_some())
                || self.unseen.has(*id)
        };
        let Some(first) = quotas.first().copied() else { return };
        if !self.leading || quotas.iter().any(is_honoured) {
            return;
        }
        self.stats.released_by_others += 1;
        let writing = self.writings.entry(first).or_default();
        writing.gates.note(now.mono_ms);
        if writing.gates.is_told(1) {
            let times = writing.gates.times;
            let message = format!(
                "pod {} was let go by another client before there was room for it, the {times}. time lately; it is counted",
                record.name
            );
            self.tell_of_quota(first, reasons::GATE_REMOVED, message);
        }
    }

    fn is_as_wanted(&self, id: QuotaId) -> bool {
        let Some(quota) = self.quotas.get(id) else { return true };
        let (Some(compiled), Some(ledger)) = (self.summed(id), self.queue.ledger(id)) else { return true };
        let target = sluice_engine::status_target(compiled, ledger);
        let held = i64::try_from(self.queue.held(id)).unwrap_or(i64::MAX);
        records(&quota.recorded, &target) && shows(&quota.recorded, &target, held)
    }

    fn tell_of_quota(&mut self, id: QuotaId, reason: &'static str, message: String) {
        let Some(quota) = self.quotas.get(id) else { return };
        let Some(namespace) = self.namespaces.get(quota.namespace) else { return };
        let (namespace, name) = (std::sync::Arc::clone(&namespace.name), std::sync::Arc::clone(&quota.name));
        tracing::warn!(ns = %namespace, quota = %name, reason, %message, "quota contested");
        self.telling.announce(Tell {
            about: About::Quota(id),
            namespace,
            name,
            uid: quota.uid.clone(),
            reason,
            message,
        });
    }
}

/// Who else wrote the status, as its last field manager.
fn other_writer(wire: &QuotaWire) -> Option<&str> {
    let entries = wire.metadata.managed_fields.iter().flatten();
    let of_status = entries.filter(|entry| entry.subresource.as_deref() == Some("status"));
    let others = of_status.filter(|entry| entry.manager.as_deref() != Some(names::CONTROLLER));
    others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.as_deref()
}
