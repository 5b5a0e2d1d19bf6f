//! Lists that are read before pods go: of quotas, and of what says which namespaces are targeted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use sluice_engine::{Timers, Uid};

use crate::backoff::delay_ms;
use crate::config::Moment;
use crate::orders::{Decision, Decisions, Listed};

/// Who may create pods may ask for a list of all namespaces by each of them: it is made so often at most (milliseconds).
const TARGETS_SPACING_MS: u64 = 1_000;

#[derive(Debug, Default)]
struct Check {
    /// Decisions that need a list from now on.
    waiting: Decisions,
    /// Decisions that were made before the list that is in flight was requested.
    in_flight: Option<Decisions>,
    /// Failures in a row, and until when (milliseconds) it is not tried again.
    failures: u32,
    not_before_ms: u64,
    /// Quotas that have ended since the list that is in flight was requested: it may hold them still.
    gone: HashSet<Uid>,
}

/// What is to be listed, are being listed, or could not be.
///
/// Invariant: of each there is at most one list in flight. A decision is returned by the first list that was requested after
/// it was made, exactly once. Where a list failed, the next one waits until its backoff has passed.
#[derive(Debug, Default)]
pub struct Lists {
    checks: HashMap<Listed, Check>,
    wanted: BTreeSet<Listed>,
    later: Timers<Listed>,
}

impl Lists {
    /// The decision waits for a list that is requested from now on.
    pub fn wait(&mut self, listed: Listed, decision: Decision) {
        self.checks.entry(listed).or_default().waiting.push(decision);
        self.wanted.insert(listed);
    }

    /// What waits may be listed now.
    pub fn request(&mut self, listed: Listed) {
        self.wanted.insert(listed);
    }

    /// What to list now, for the decisions that wait; `is_put_off` says of what another time. One that is in flight is
    /// looked at again with its answer, one that backs off when its time has come, one that is put off when it is requested.
    pub fn begin_wanted(&mut self, now: Moment, is_put_off: impl Fn(Listed) -> bool) -> Vec<Listed> {
        let mut begun = Vec::new();
        for listed in std::mem::take(&mut self.wanted) {
            let Some(check) = self.checks.get_mut(&listed) else { continue };
            if check.in_flight.is_some() || now.mono_ms < check.not_before_ms || is_put_off(listed) {
                continue;
            }
            if check.waiting.is_empty() {
                self.checks.remove(&listed);
                continue;
            }
            check.in_flight = Some(std::mem::take(&mut check.waiting));
            check.gone.clear();
            begun.push(listed);
            if listed == Listed::Targets {
                check.not_before_ms = now.mono_ms + TARGETS_SPACING_MS;
                self.later.set(listed, check.not_before_ms);
            }
        }
        begun
    }

    /// The decisions that a list has not returned yet.
    pub fn unlisted(&self, listed: Listed) -> Decisions {
        let check = self.checks.get(&listed).into_iter();
        let all = check.flat_map(|check| check.waiting.iter().chain(check.in_flight.iter().flatten()));
        all.copied().collect()
    }

    /// The list was read: returns the decisions that it was requested after.
    pub fn succeeded(&mut self, listed: Listed) -> Decisions {
        let Some(check) = self.checks.get_mut(&listed) else { return Vec::new() };
        check.failures = 0;
        self.wanted.insert(listed);
        check.in_flight.take().unwrap_or_default()
    }

    /// The list could not be read. Decisions that do not stand any more are forgotten.
    pub fn failed(
        &mut self,
        listed: Listed,
        retry_after: Option<Duration>,
        stands: impl Fn(&Decision) -> bool,
        now: Moment,
    ) {
        let Some(check) = self.checks.get_mut(&listed) else { return };
        check.waiting.extend(check.in_flight.take().unwrap_or_default());
        check.waiting.retain(stands);
        check.failures += 1;
        check.not_before_ms = now.mono_ms + delay_ms(retry_after, check.failures);
        self.later.set(listed, check.not_before_ms);
    }

    /// No decision waits for a list of cluster quotas any more. One that is in flight confirms nothing.
    pub fn forget_cluster(&mut self) {
        let Some(check) = self.checks.get_mut(&Listed::Cluster) else { return };
        check.waiting.clear();
        if let Some(in_flight) = &mut check.in_flight {
            in_flight.clear();
        }
    }

    /// A quota that such lists hold has ended.
    pub fn note_gone(&mut self, listed: Listed, uid: &Uid) {
        if let Some(check) = self.checks.get_mut(&listed).filter(|check| check.in_flight.is_some()) {
            check.gone.insert(uid.clone());
        }
    }

    /// Whether the list that is in flight may be believed about the quota: not if that has ended since it was requested,
    /// which the watch has shown and does not show again.
    pub fn is_to_apply(&self, listed: Listed, uid: &Uid) -> bool {
        let check = self.checks.get(&listed);
        check.is_some_and(|check| check.in_flight.is_some() && !check.gone.contains(uid))
    }

    /// The namespace is no more, and with it the decisions that wait for a list.
    pub fn forget(&mut self, listed: Listed) {
        self.checks.remove(&listed);
    }

    /// Requests again what has backed off long enough.
    pub fn pass_time(&mut self, now: Moment) {
        while let Some(listed) = self.later.pop_due(now.mono_ms) {
            self.wanted.insert(listed);
        }
    }

    /// Of the monotonic clock (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }

    pub fn is_idle(&self) -> bool {
        self.checks.values().all(|check| check.in_flight.is_none())
    }
}
