//! How much later a request that failed is tried again.

use std::time::Duration;

/// After the first failure a request is tried again this much later (milliseconds).
pub(super) const FIRST_RETRY_MS: u64 = 100;

/// A delay that doubles with each failure: `first_ms`, 2×, 4× … at most a minute.
pub(super) fn backoff_ms(first_ms: u64, failures: u32) -> u64 {
    first_ms.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(60_000)
}

/// The delay that the API server asks for, or else the backoff (milliseconds).
pub(super) fn delay_ms(retry_after: Option<Duration>, failures: u32) -> u64 {
    retry_after
        .and_then(|after| u64::try_from(after.as_millis()).ok())
        .map_or_else(|| backoff_ms(FIRST_RETRY_MS, failures), |after| after.clamp(1, 60_000))
}
