//! The order in which pods wait.

use std::cmp::Reverse;

use crate::uid::Uid;

/// A pod, by a handle of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId(pub u32);

/// A quota, by a handle of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuotaId(pub u32);

/// A class of waiting pods, see [`EquivalenceClass`](super::EquivalenceClass).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub(super) u32);

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

/// When a pod that waits is given up by what has created it, in seconds since the epoch.
///
/// Who owns the pod may have chosen it: it orders the pods of one share, and says nothing across shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Deadline(pub i64);

impl Deadline {
    /// Of a pod that no deadline is near of.
    pub const NONE: Self = Self(i64::MAX);

    /// From so many seconds before it on it is near.
    pub const NEAR_S: i64 = 300;

    /// So many seconds after this one.
    #[must_use]
    pub const fn after(second: i64, timeout: i64) -> Self {
        Self(second.saturating_add(timeout))
    }

    /// The second from which on it is near.
    #[must_use]
    pub const fn near_from(self) -> i64 {
        self.0.saturating_sub(Self::NEAR_S)
    }

    /// Whether it is near in this second, and not over: what is released after it is given up all the same.
    #[must_use]
    pub const fn is_near(self, second: i64) -> bool {
        self.near_from() <= second && second < self.0
    }
}

/// A pod's place among those of its share: one that a deadline is near of comes first, and the nearer one before others.
pub(super) type Rank = (Deadline, WaitKey);

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
