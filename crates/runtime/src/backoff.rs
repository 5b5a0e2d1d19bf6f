//! Exponential backoff: how long to leave alone what has failed.
//!
//! Pure: failures, a seed and the caller's clock give the next moment, so that the model checker and simulations can run it.
//! Libraries such as `backon` keep a random generator inside and can be neither compared nor hashed.

use std::time::Duration;

/// Waits that double with each failure in a row, from the first to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// `None`: no jitter.
    seed: Option<u64>,
    failures: u32,
}

impl Backoff {
    /// With jitter: the nth wait is between half and all of `first * 2^n`, at most `longest`. `seed` spreads several
    /// backoffs apart; any value is fine, and the same one gives the same waits.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, seed: Some(seed), failures: 0 }
    }

    /// Without jitter, where all replicas have to come to the same result.
    #[must_use]
    pub const fn exact(first: Duration, longest: Duration) -> Self {
        Self { first, longest, seed: None, failures: 0 }
    }

    /// Counts one more failure. Returns how long to wait.
    pub fn failed(&mut self) -> Duration {
        let whole = doubled(self.first, self.longest, self.failures);
        let draw = self.seed.map(|seed| draw(seed.wrapping_add(u64::from(self.failures))));
        self.failures = self.failures.saturating_add(1);
        draw.map_or(whole, |draw| whole / 2 + (whole / 2).mul_f64(draw))
    }

    /// Forgets all failures; for a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

/// `first * 2^times`, at most `longest`: the waits of an exact [`Backoff`], for callers that count failures themselves.
#[must_use]
pub fn doubled(first: Duration, longest: Duration, times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

/// A [`Backoff`] and the moment to which it leads, in milliseconds of a clock that
/// the caller reads and that is not set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    backoff: Backoff,
    forgotten_after_ms: u64,
    not_before_ms: u64,
}

impl Retry {
    /// No failure yet: nothing is waited for. Failures count until [`Self::reset`].
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff, forgotten_after_ms: u64::MAX, not_before_ms: 0 }
    }

    /// Failures also stop to count when the next one comes later than `ms` after the end of the last wait.
    #[must_use]
    pub const fn forgetting_after(mut self, ms: u64) -> Self {
        self.forgotten_after_ms = ms;
        self
    }

    /// Counts a failure at `now_ms`: the next wait begins.
    pub fn failed(&mut self, now_ms: u64) {
        self.failed_for(now_ms, 0);
    }

    /// As [`Self::failed`], with a wait of `least_ms` at least, which may be longer than the longest of the backoff.
    pub fn failed_for(&mut self, now_ms: u64, least_ms: u64) {
        if now_ms > self.not_before_ms.saturating_add(self.forgotten_after_ms) {
            self.backoff.reset();
        }
        let wait = u64::try_from(self.backoff.failed().as_millis()).unwrap_or(u64::MAX);
        self.not_before_ms = now_ms.saturating_add(wait.max(least_ms));
    }

    /// Whether the wait is not over at `now_ms`.
    #[must_use]
    pub const fn is_waiting(&self, now_ms: u64) -> bool {
        now_ms < self.not_before_ms
    }

    /// The end of the wait; 0 without a failure.
    #[must_use]
    pub const fn not_before_ms(&self) -> u64 {
        self.not_before_ms
    }

    /// Failures that count.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// Forgets all failures and ends the wait; for a success.
    pub const fn reset(&mut self) {
        self.backoff.reset();
        self.not_before_ms = 0;
    }
}

/// A seed for jitter that differs between processes.
#[must_use]
pub fn process_seed() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(std::process::id())
}

/// A number from 0 to 1, without 1, that follows from `seed`.
pub(crate) fn draw(seed: u64) -> f64 {
    // What is left of the remainder fits into any number type.
    f64::from(u32::try_from(mix(seed) % 1024).unwrap_or(0)) / 1024.0
}

/// The finaliser of splitmix64: spreads neighbouring inputs over all 64 bits.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn waits_double_up_to_the_longest_and_start_over() {
        let mut backoff = Backoff::new(FIRST, LONGEST, 7);
        let mut exact = Backoff::exact(FIRST, LONGEST);
        let waits: Vec<_> = (0..80).map(|_| backoff.failed()).collect();
        for (n, wait) in waits.iter().enumerate() {
            let whole = FIRST.saturating_mul(2_u32.saturating_pow(n as u32)).min(LONGEST);
            assert!(
                *wait >= whole / 2 && *wait <= whole,
                "wait {n} is {wait:?}, want {:?}..={whole:?}",
                whole / 2
            );
            assert_eq!(exact.failed(), whole, "wait {n}");
        }
        backoff.reset();
        assert_eq!(backoff.failed(), waits[0], "the same seed gives the same waits");
        let mut other = Backoff::new(FIRST, LONGEST, 8);
        assert_ne!(other.failed(), waits[0], "another seed gives other waits");
    }

    #[test]
    fn a_retry_waits_from_the_failure_on_and_can_forget_it() {
        let mut retry = Retry::new(Backoff::exact(FIRST, LONGEST)).forgetting_after(1_000);
        assert!(!retry.is_waiting(0));
        retry.failed(5_000);
        assert!(retry.is_waiting(5_099) && !retry.is_waiting(5_100));
        retry.failed_for(5_100, 150);
        assert_eq!((retry.not_before_ms(), retry.failures()), (5_300, 2), "it doubles above the least");
        retry.failed_for(5_300, 90_000);
        assert_eq!((retry.not_before_ms(), retry.failures()), (95_300, 3), "the least is longer");
        retry.failed(96_300);
        assert_eq!((retry.not_before_ms(), retry.failures()), (97_100, 4), "not forgotten yet");
        retry.failed(98_101);
        assert_eq!((retry.not_before_ms(), retry.failures()), (98_201, 1), "forgotten");
        retry.reset();
        assert_eq!((retry.not_before_ms(), retry.failures()), (0, 0));
    }
}
