//! How much later a request that failed is tried again.

use std::time::Duration;

use sluice_runtime::backoff::doubled;

/// After the first failure a request is tried again this much later (milliseconds).
pub(super) const FIRST_RETRY_MS: u64 = 100;

/// No delay is longer (milliseconds).
const LONGEST_MS: u64 = 60_000;

/// A delay that doubles with each failure: `first_ms`, 2×, 4× … at most a minute.
pub(super) fn backoff_ms(first_ms: u64, failures: u32) -> u64 {
    let [first, longest] = [first_ms, LONGEST_MS].map(Duration::from_millis);
    u64::try_from(doubled(first, longest, failures.saturating_sub(1)).as_millis()).unwrap_or(LONGEST_MS)
}

/// The delay that the API server asks for, or else the backoff (milliseconds).
pub(super) fn delay_ms(retry_after: Option<Duration>, failures: u32) -> u64 {
    retry_after
        .and_then(|after| u64::try_from(after.as_millis()).ok())
        .map_or_else(|| backoff_ms(FIRST_RETRY_MS, failures), |after| after.clamp(1, LONGEST_MS))
}
