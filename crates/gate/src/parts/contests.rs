//! Other clients that write what only this controller should write. Its answer comes ever later, so that two writers do not
//! drive each other.

use std::collections::HashMap;

use sluice_engine::QuotaId;

use crate::backoff::backoff_ms;
use crate::config::Moment;

/// After so many times it is a contest: a status that was edited once by hand is put right at once.
const TOLERATED: u32 = 3;
/// The first time after that, a write comes so much later, then each time twice that (milliseconds).
const FIRST_DELAY_MS: u64 = 200;
/// A contest that has rested for so long is over (milliseconds).
const OVER_MS: u64 = 600_000;
/// A write that a release waits for is put off by no more than this (milliseconds).
const CHARGE_AT_MOST_MS: u64 = 1_000;

/// How often another client has done it.
#[derive(Debug, Default)]
struct Contest {
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

    fn delay_ms(&self, now: Moment) -> u64 {
        match self.times.saturating_sub(TOLERATED) {
            over if over > 0 && !self.is_over(now.mono_ms) => backoff_ms(FIRST_DELAY_MS, over),
            _ => 0,
        }
    }

    fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_ms) > OVER_MS
    }

    /// Seldom: from `first` times on at each power of two.
    fn is_reported(&self, first: u32) -> bool {
        self.times == first || (self.times > first && self.times.is_power_of_two())
    }
}

/// The contests about each quota; none of most.
///
/// Invariant: an overwritten status is noted once per write of this controller. What is announced of a quota is announced
/// once per change, however often another client takes it out of the status.
#[derive(Debug, Default)]
pub struct Contests {
    /// Why they limit nothing, as it was said last.
    unenforced: HashMap<QuotaId, &'static str>,
    /// Their status is overwritten.
    statuses: HashMap<QuotaId, Contest>,
    /// The gates of pods that wait for them are removed.
    gates: HashMap<QuotaId, Contest>,
}

impl Contests {
    /// The status that this controller wrote at `written_ms` was overwritten. Returns whether to report it; `None` if it was
    /// noted already.
    pub fn status_overwritten(&mut self, id: QuotaId, written_ms: u64, now: Moment) -> Option<bool> {
        let contest = self.statuses.entry(id).or_default();
        if written_ms < contest.last_ms {
            return None;
        }
        contest.note(now.mono_ms.max(written_ms + 1));
        Some(contest.is_reported(TOLERATED))
    }

    /// The gate of a pod that waits for the quota was removed. Returns how often lately, if it is to be reported.
    pub fn gate_removed(&mut self, id: QuotaId, now: Moment) -> Option<u32> {
        let contest = self.gates.entry(id).or_default();
        contest.note(now.mono_ms);
        contest.is_reported(1).then_some(contest.times)
    }

    /// The status of the quota is to say that it limits nothing for the reason `wanted`, and says so for the reason
    /// `recorded`.
    pub fn unenforced(&mut self, id: QuotaId, wanted: Option<&'static str>, recorded: Option<&str>) {
        match wanted {
            None => {
                self.unenforced.remove(&id);
            }
            Some(reason) if recorded == Some(reason) => {
                self.unenforced.insert(id, reason);
            }
            Some(_) => {}
        }
    }

    /// A status with this reason is written. Returns whether to announce it: it was not said since the quota last
    /// limited something, or for another reason.
    pub fn is_unenforced_news(&mut self, id: QuotaId, reason: &'static str) -> bool {
        self.unenforced.insert(id, reason) != Some(reason)
    }

    /// The least time between two writes of the status that nothing waits for (milliseconds).
    pub fn delay_ms(&self, id: QuotaId, now: Moment) -> u64 {
        self.statuses.get(&id).map_or(0, |contest| contest.delay_ms(now))
    }

    /// The least time between two writes of the status that a release waits for (milliseconds).
    pub fn charge_delay_ms(&self, id: QuotaId, now: Moment) -> u64 {
        self.delay_ms(id, now).min(CHARGE_AT_MOST_MS)
    }

    /// The quota has another handle.
    pub fn rename(&mut self, old: QuotaId, new: QuotaId) {
        for contests in [&mut self.statuses, &mut self.gates] {
            if let Some(contest) = contests.remove(&old) {
                contests.insert(new, contest);
            }
        }
        if let Some(reason) = self.unenforced.remove(&old) {
            self.unenforced.insert(new, reason);
        }
    }

    pub fn forget(&mut self, id: QuotaId) {
        self.statuses.remove(&id);
        self.gates.remove(&id);
        self.unenforced.remove(&id);
    }
}
