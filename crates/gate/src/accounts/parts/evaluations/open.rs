//! The question about a pod: since when it is open, whether it is in flight, and how it failed.

use std::sync::Arc;

use sluice_index::NamespaceId;

use super::unready::Lack;

/// A pod that has no answer is told of after so long (milliseconds), where it waits or fails.
const TOLD_MS: u64 = 2_000;
/// So long a pod that runs keeps its namespace paused (milliseconds), and only then is told of if it does not fail: after a
/// start all pods of a cluster stand in line, and what is to be told of each takes memory.
pub const PAUSED_MS: u64 = 30_000;

/// A pod without an answer for its content that has no place [in line](super::line).
#[derive(Debug)]
pub struct Open {
    pub namespace: NamespaceId,
    /// The evaluators that are asked.
    pub selected: u16,
    pub since_ms: u64,
    pub is_waiting: bool,
    /// The question that is in flight.
    pub serial: Option<u64>,
    pub has_turn: bool,
    pub failures: u32,
    pub failure: Option<Arc<str>>,
    /// The one that has no answer, a bit for each evaluator.
    pub failed_by: u16,
    /// Not to be asked about before (milliseconds); `NEVER`: before something has changed.
    pub retry_ms: u64,
    pub is_told: bool,
    pub has_expired: bool,
    pub lack: Lack,
    pub is_native: bool,
    /// There is an answer about its content, and it is asked about again because other pods have changed.
    pub is_again: bool,
    /// It is asked about in the next round of its namespace.
    pub awaits_round: bool,
}

impl Open {
    pub const fn new(namespace: NamespaceId, selected: u16, is_waiting: bool, since_ms: u64) -> Self {
        Self {
            namespace,
            selected,
            since_ms,
            is_waiting,
            serial: None,
            has_turn: false,
            failures: 0,
            failure: None,
            failed_by: 0,
            retry_ms: 0,
            is_told: false,
            has_expired: false,
            lack: Lack { is_pending: false, is_unanswered: false },
            is_native: false,
            is_again: false,
            awaits_round: false,
        }
    }

    /// When the pod is to be told of, if it was not.
    pub fn told_ms(&self) -> Option<u64> {
        let after = if self.is_waiting || self.failure.is_some() { TOLD_MS } else { PAUSED_MS };
        (!self.is_told && !self.is_again).then_some(self.since_ms + after)
    }

    pub const fn is_overdue(&self) -> bool {
        self.is_told && !self.is_waiting
    }
}
