//! The order in which pods wait.

use std::cmp::Reverse;

use crate::uid::Uid;

/// A pod, by a handle of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId(pub u32);

/// A quota, by a handle of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuotaId(pub u32);

/// A pod's place in the order: priority, then creation time, then uid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey {
    /// Higher `spec.priority` comes first.
    pub priority: Reverse<i32>,
    /// `metadata.creationTimestamp` in seconds since the epoch.
    pub created: i64,
    /// Settles ties, so that the same input always gives the same order.
    pub uid: Uid,
}

/// How long a pod has waited, longest first: since when it is seen waiting (milliseconds of the caller's clock), then
/// its place in the order.
pub(super) type Age = (u64, WaitKey);

/// How long pods wait before room is kept for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The present moment, on the clock that [`ReleaseQueue::wait`](super::ReleaseQueue::wait) is given too.
    pub now_ms: u64,
    /// For so long.
    pub limit_ms: u64,
}

impl Patience {
    /// Those that have waited since this moment or before have waited too long. None has before that clock was at the limit.
    pub(super) const fn ended_ms(self) -> Option<u64> {
        self.now_ms.checked_sub(self.limit_ms)
    }
}
