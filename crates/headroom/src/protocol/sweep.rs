//! Which quotas a sweep restores.

use sluice_engine::headroom::{NativeQuota, Restore, restore};

use super::session::is_over;

/// A quota that is raised without a mark is left to kube-controller-manager for so long; milliseconds.
const UNMARKED_MS: u64 = 1_000;

/// What a sweep finds at a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// There is nothing to end.
    Nothing,
    /// There is, but not before so many milliseconds.
    Later(u64),
    /// This is to be written now.
    Now(Restore),
}

/// Judges one quota. `now_ms`: the API server's clock, at most a second behind. `raised_ms`: for how long the quota has been
/// seen raised without a mark.
#[must_use]
pub fn sweep(quota: &NativeQuota, now_ms: i64, raised_ms: u64) -> Left {
    let Some(write) = restore(quota) else { return Left::Nothing };
    let wait = match quota.mark() {
        Some(mark) if is_over(mark, now_ms) => 0,
        Some(mark) => u64::try_from(mark.saturating_sub(now_ms)).unwrap_or(0).max(1),
        None => UNMARKED_MS.saturating_sub(raised_ms),
    };
    if wait == 0 { Left::Now(write) } else { Left::Later(wait) }
}
