//! Other clients that write the status of quotas. The answer of this controller comes ever later, so that two writers do not
//! drive each other.

use std::collections::HashMap;

use sluice_engine::QuotaId;

use crate::config::Moment;
use crate::contest::{Contest, TOLERATED};

/// A write that a release waits for is put off by no more than this (milliseconds).
const CHARGE_AT_MOST_MS: u64 = 1_000;

/// The quotas whose status another client writes; none of most.
///
/// Invariant: an overwritten status is noted once per write of this controller. What is announced of a quota is announced
/// once per change, however often another client takes it out of the status.
#[derive(Debug, Default)]
pub struct Overwrites {
    /// Why they limit nothing, as it was said last.
    unenforced: HashMap<QuotaId, &'static str>,
    /// Their status is overwritten.
    statuses: HashMap<QuotaId, Contest>,
}

impl Overwrites {
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
        if let Some(contest) = self.statuses.remove(&old) {
            self.statuses.insert(new, contest);
        }
        if let Some(reason) = self.unenforced.remove(&old) {
            self.unenforced.insert(new, reason);
        }
    }

    pub fn forget(&mut self, id: QuotaId) {
        self.statuses.remove(&id);
        self.unenforced.remove(&id);
    }
}
