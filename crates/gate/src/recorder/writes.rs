//! Writes of quotas' status: which are due, which are in flight, and the decisions whose charge they record.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sluice_engine::{QuotaId, Timers};

use super::marks::{InFlightNow, Mark, Marks};
use super::stamp::Stamp;
use crate::action::Record;
use crate::backoff::delay_ms;
use crate::config::Moment;
use crate::orders::{Decision, Decisions};

/// The writes of one quota.
#[derive(Debug, Default)]
struct StatusWrite {
    /// Decisions whose charge has to be recorded before the gate is removed.
    pending: Decisions,
    in_flight: Option<InFlight>,
    /// Not before this moment (milliseconds).
    not_before_ms: u64,
    /// Failures in a row.
    failures: u32,
    /// When the last write was begun (milliseconds).
    last_ms: Option<u64>,
}

/// A write that was not answered yet.
#[derive(Debug)]
pub struct InFlight {
    pub charged: Decisions,
    /// The decisions were made before something was seen that speaks against them.
    pub overtaken: bool,
    pub asked: Option<Record>,
}

/// The writes of all quotas.
///
/// Invariant: a quota has at most one write in flight. A decision that was [charged](Self::charge) is in exactly one place,
/// pending or in flight, until it is recorded or returned to be taken back. A quota is dirty whenever its status may differ
/// from what it should be and neither a write nor a timer of it is under way.
#[derive(Debug)]
pub struct StatusWrites {
    by_quota: HashMap<QuotaId, StatusWrite>,
    /// Quotas that are dirty.
    marks: Marks,
    /// Quotas with a write in flight whose last write failed.
    repeated: HashSet<QuotaId>,
    /// Requests that were not answered yet, those of quotas that are gone included.
    requests: usize,
    /// Quotas to look at again at a moment (milliseconds).
    later: Timers<QuotaId>,
    /// Marks the charges that this process records.
    stamp: Stamp,
}

impl StatusWrites {
    pub fn new(stamp: Stamp) -> Self {
        Self {
            by_quota: HashMap::new(),
            marks: Marks::default(),
            repeated: HashSet::new(),
            requests: 0,
            later: Timers::default(),
            stamp,
        }
    }

    /// The quota's status may have to be written.
    pub fn mark(&mut self, id: QuotaId) {
        let mark = match (self.has_failed(id), self.has_pending(id)) {
            (true, _) => Mark::Again,
            (false, true) => Mark::Charge,
            (false, false) => Mark::Restate,
        };
        self.marks.mark(id, mark);
    }

    /// The next marked quota, in turn; its mark is removed.
    pub fn next(&mut self) -> Option<QuotaId> {
        self.marks.next(self.in_flight_now())
    }

    pub fn has_next(&self) -> bool {
        self.marks.has_next(self.in_flight_now())
    }

    fn in_flight_now(&self) -> InFlightNow {
        InFlightNow { all: self.requests, repeated: self.repeated.len() }
    }

    /// The next write of the quota has to record the charge of this decision.
    pub fn charge(&mut self, id: QuotaId, decision: Decision) {
        self.by_quota.entry(id).or_default().pending.push(decision);
        self.mark(id);
    }

    pub fn is_in_flight(&self, id: QuotaId) -> bool {
        self.by_quota.get(&id).is_some_and(|write| write.in_flight.is_some())
    }

    /// Whether the write that is in flight creates the record.
    pub fn is_creating(&self, id: QuotaId) -> bool {
        let in_flight = self.by_quota.get(&id).and_then(|write| write.in_flight.as_ref());
        in_flight.and_then(|it| it.asked.as_ref()).is_some_and(Record::is_new)
    }

    pub fn has_pending(&self, id: QuotaId) -> bool {
        self.by_quota.get(&id).is_some_and(|write| !write.pending.is_empty())
    }

    /// Begins a write that records all pending decisions, at least `spacing_ms` after the last one. Returns how many it
    /// records; `None` if it is too early, then the quota is marked again when its time has come.
    pub fn begin(&mut self, id: QuotaId, spacing_ms: u64, now: Moment) -> Option<usize> {
        let write = self.by_quota.entry(id).or_default();
        let due = write.last_ms.map_or(0, |last| last + spacing_ms).max(write.not_before_ms);
        if due > now.mono_ms {
            self.later.set_earlier(id, due);
            return None;
        }
        write.last_ms = Some(now.mono_ms);
        let charged = std::mem::take(&mut write.pending);
        let many = charged.len();
        write.in_flight = Some(InFlight { charged, overtaken: false, asked: None });
        self.requests += 1;
        if write.failures > 0 {
            self.repeated.insert(id);
        }
        Some(many)
    }

    /// As [`Self::begin`], but the write records nothing; decisions stay pending. False if it is too early.
    pub fn begin_without_charge(&mut self, id: QuotaId, spacing_ms: u64, now: Moment) -> bool {
        let pending = self.take_pending(id);
        let is_begun = self.begin(id, spacing_ms, now).is_some();
        if let Some(write) = self.by_quota.get_mut(&id) {
            write.pending = pending;
        }
        is_begun
    }

    /// The write that was begun asks for this.
    pub fn ask(&mut self, record: &Record) {
        if let Some(in_flight) =
            self.by_quota.get_mut(&record.quota).and_then(|write| write.in_flight.as_mut())
        {
            in_flight.asked = Some(record.clone());
        }
    }

    /// A request of the quota was answered, whether it is still there or not.
    pub fn end_request(&mut self, id: QuotaId) {
        self.requests = self.requests.saturating_sub(1);
        self.repeated.remove(&id);
    }

    /// Ends the write that is in flight.
    pub fn answered(&mut self, id: QuotaId) -> Option<InFlight> {
        self.by_quota.get_mut(&id)?.in_flight.take()
    }

    /// Whether the last write of this quota was not done.
    pub fn has_failed(&self, id: QuotaId) -> bool {
        self.by_quota.get(&id).is_some_and(|write| write.failures > 0)
    }

    /// The API server has answered with the quota as it is now.
    pub fn reset_failures(&mut self, id: QuotaId) {
        if let Some(write) = self.by_quota.get_mut(&id) {
            write.failures = 0;
        }
    }

    /// The write failed, or its outcome is not known: these decisions are recorded with the next one. If it was done after
    /// all, the record tells by its stamp which process made it.
    pub fn retry_later(
        &mut self,
        id: QuotaId,
        mut charged: Decisions,
        retry_after: Option<Duration>,
        now: Moment,
    ) {
        let Some(write) = self.by_quota.get_mut(&id) else { return };
        charged.append(&mut write.pending);
        write.pending = charged;
        write.failures += 1;
        write.not_before_ms = now.mono_ms + delay_ms(retry_after, write.failures);
        self.later.set_earlier(id, write.not_before_ms);
    }

    /// Returns the decisions that no write records yet.
    pub fn take_pending(&mut self, id: QuotaId) -> Decisions {
        self.by_quota.get_mut(&id).map(|write| std::mem::take(&mut write.pending)).unwrap_or_default()
    }

    /// The quota is not what it was when its last charges were decided on: returns the decisions that are not recorded.
    /// Those in flight cannot be called back, but if their write fails they are not tried again.
    pub fn overtake(&mut self, id: QuotaId) -> Decisions {
        if let Some(write) = self.by_quota.get_mut(&id).and_then(|write| write.in_flight.as_mut()) {
            write.overtaken = true;
        }
        self.take_pending(id)
    }

    /// The decisions that are pending or in flight.
    pub fn unrecorded(&self, id: QuotaId) -> Decisions {
        let write = self.by_quota.get(&id).into_iter();
        let all = write.flat_map(|write| {
            write.pending.iter().chain(write.in_flight.iter().flat_map(|in_flight| &in_flight.charged))
        });
        all.copied().collect()
    }

    /// When the last write was begun (milliseconds), if it was done.
    pub fn last_done_ms(&self, id: QuotaId) -> Option<u64> {
        let write = self.by_quota.get(&id)?;
        write.last_ms.filter(|_| write.in_flight.is_none() && write.failures == 0)
    }

    /// The quota has another handle and other decisions: only the pauses between its writes stay.
    pub fn rename(&mut self, old: QuotaId, new: QuotaId, spacing_ms: u64) {
        let Some(write) = self.by_quota.remove(&old) else { return };
        let spaced = write.last_ms.map_or(0, |last| last + spacing_ms);
        let not_before_ms = write.not_before_ms.max(spaced);
        let failures = write.failures;
        self.by_quota.insert(new, StatusWrite { not_before_ms, failures, ..StatusWrite::default() });
    }

    /// The quota is no more. The answer to a write in flight has no effect.
    pub fn forget(&mut self, id: QuotaId) {
        self.by_quota.remove(&id);
    }

    /// Nothing is to be written of the quota.
    pub fn unmark(&mut self, id: QuotaId) {
        self.marks.unmark(id);
    }

    /// Marks the quotas whose time has come.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some(id) = self.later.pop_due(now.mono_ms) {
            self.mark(id);
        }
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }

    pub fn is_idle(&self) -> bool {
        self.by_quota.values().all(|write| write.in_flight.is_none())
    }

    /// `status.charges` to record with `more` charges.
    pub fn charges_after(&self, recorded: i64, more: usize) -> i64 {
        self.stamp.after(recorded, more)
    }

    /// Whether this process made the charge that was recorded with this `status.charges`.
    pub fn made(&self, charges: i64) -> bool {
        self.stamp.made(charges)
    }
}

#[cfg(test)]
mod tests {
    use super::super::marks::{AT_A_TIME, REPEATED, RESTATED};
    use super::*;

    fn at(mono_ms: u64) -> Moment {
        Moment { mono_ms, unix_ms: 0 }
    }

    /// As by a slow admission webhook of somebody else.
    #[test]
    fn quotas_whose_last_write_failed_take_a_few_places_and_leave_the_others() {
        let mut writes = StatusWrites::new(Stamp::numbered(1));
        let failing: Vec<QuotaId> = (0..300).map(QuotaId).collect();
        for id in &failing {
            writes.begin(*id, 0, at(0));
            writes.answered(*id);
            writes.end_request(*id);
            writes.retry_later(*id, Decisions::new(), None, at(0));
        }
        let later = at(1_000_000);
        writes.pass_time(later);
        writes.mark(QuotaId(1_000));
        let mut begun = Vec::new();
        while let Some(id) = writes.next() {
            writes.begin(id, 0, later);
            begun.push(id);
        }
        assert_eq!(begun.iter().filter(|id| failing.contains(id)).count(), REPEATED);
        assert!(begun.contains(&QuotaId(1_000)));
        assert!(!writes.has_next(), "until one of the few is answered");
        writes.answered(begun[0]);
        writes.end_request(begun[0]);
        assert!(writes.has_next());
    }
    /// As after a change that is about all quotas.
    #[test]
    fn a_charge_waits_for_few_of_all_statuses_that_are_written() {
        let mut writes = StatusWrites::new(Stamp::numbered(1));
        let all = 0..1_000;
        all.clone().for_each(|id| writes.mark(QuotaId(id)));
        let begin = |writes: &mut StatusWrites| {
            let mut begun = Vec::new();
            while let Some(id) = writes.next() {
                writes.begin(id, 0, at(0));
                begun.push(id.0);
            }
            assert!(!writes.has_next());
            begun
        };
        let end = |writes: &mut StatusWrites, id: u32| {
            writes.answered(QuotaId(id));
            writes.end_request(QuotaId(id));
        };
        let mut begun = begin(&mut writes);
        assert_eq!(begun.len(), RESTATED);
        writes.charge(QuotaId(900), (sluice_engine::PodId(7), 1));
        assert_eq!(begin(&mut writes), [900], "all others have to wait");
        end(&mut writes, 900);
        writes.mark(QuotaId(900));
        // Pods that go all the time keep no status from being written.
        let mut restated = 0;
        while restated + begun.len() < all.len() {
            for id in begun.drain(..) {
                end(&mut writes, id);
            }
            for id in 2_000..2_256 {
                writes.charge(QuotaId(id), (sluice_engine::PodId(7), 1));
            }
            begun = begin(&mut writes);
            let count = begun.iter().filter(|id| **id < 1_000).count();
            assert!(count >= AT_A_TIME / 16, "{count}");
            restated += count;
        }
    }
}
