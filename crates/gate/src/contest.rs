//! Another client that does again and again what only this controller should do.

use super::backoff::backoff_ms;
use super::config::Moment;

/// After so many times it is a contest: what was edited once by hand is put right at once.
pub const TOLERATED: u32 = 3;
/// The first time after that, the answer comes so much later, then each time twice that (milliseconds).
const FIRST_DELAY_MS: u64 = 200;
/// A contest that has rested for so long is over (milliseconds).
const OVER_MS: u64 = 600_000;

/// How often another client has done it.
#[derive(Debug, Default)]
pub struct Contest {
    pub times: u32,
    pub last_ms: u64,
}

impl Contest {
    /// Another client has done so once more.
    pub fn note(&mut self, now_ms: u64) {
        if self.is_over(now_ms) {
            self.times = 0;
        }
        self.times = self.times.saturating_add(1);
        self.last_ms = now_ms;
    }

    /// How much later than usual the answer comes (milliseconds).
    pub fn delay_ms(&self, now: Moment) -> u64 {
        match self.times.saturating_sub(TOLERATED) {
            over if over > 0 && !self.is_over(now.mono_ms) => backoff_ms(FIRST_DELAY_MS, over),
            _ => 0,
        }
    }

    fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_ms) > OVER_MS
    }

    /// Seldom: from `first` times on at each power of two.
    pub const fn is_reported(&self, first: u32) -> bool {
        self.times == first || (self.times > first && self.times.is_power_of_two())
    }
}
