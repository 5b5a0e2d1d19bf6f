//! How often the same objects may be written.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// This many writes may follow each other at once: each of our objects may be put back some times.
const BURST: usize = 60;
/// In this time.
const WINDOW: Duration = Duration::from_secs(60);

/// The latest writes, at most [`BURST`] of them.
#[derive(Debug, Default)]
pub(super) struct Pace(VecDeque<Instant>);

impl Pace {
    /// Something was written.
    pub(super) fn wrote(&mut self, now: Instant) {
        if self.0.len() >= BURST {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// When the next write may follow; not after `now` if at once.
    pub(super) fn next(&self, now: Instant) -> Instant {
        match self.0.front() {
            Some(oldest) if self.0.len() >= BURST => *oldest + WINDOW,
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, Pace, WINDOW};
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn a_burst_is_free_and_then_the_oldest_write_has_to_be_over() {
        let start = Instant::now();
        let mut pace = Pace::default();
        for number in 0..BURST {
            assert_eq!(pace.next(start), start, "write {number}");
            pace.wrote(start);
        }
        let later = start + Duration::from_secs(1);
        assert_eq!(pace.next(later), start + WINDOW);
        pace.wrote(start + WINDOW);
        assert_eq!(pace.next(start + WINDOW), start + WINDOW, "all but one are over");
        for _ in 0..BURST {
            pace.wrote(start + WINDOW);
        }
        assert_eq!(pace.next(start + WINDOW), start + WINDOW * 2);
    }
}
