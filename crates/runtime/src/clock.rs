//! The API server's clock, as its answers show it (`docs/protocols.md`, *The clock*).

use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;

/// After this long without an answer the estimate is asked for anew.
const FRESH: Duration = Duration::from_secs(60);

/// An estimate of the API server's clock. Answers carry whole seconds, rounded down, so it is up to one second behind
/// and never ahead, as long as the server's clock is not set back.
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<Option<Snapshot>>);

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    date: Timestamp,
    at: Instant,
}

impl Snapshot {
    fn now(self, at: Instant) -> Option<Timestamp> {
        let passed = at.saturating_duration_since(self.at);
        self.date.checked_add(jiff::SignedDuration::try_from(passed).ok()?).ok()
    }
}

impl ServerClock {
    /// An answer came with this date.
    pub fn observe(&self, date: Option<Timestamp>) {
        self.observe_at(date, Instant::now());
    }

    fn observe_at(&self, date: Option<Timestamp>, at: Instant) {
        let Some(date) = date else { return };
        let mut known = self.0.lock();
        // The latest of two views is the better one, unless the clock was set back by more than the rounding.
        let better = known.and_then(|snapshot| snapshot.now(at)).is_none_or(|estimate| {
            date >= estimate || estimate.duration_since(date) > jiff::SignedDuration::from_secs(2)
        });
        let stale = known.is_some_and(|snapshot| at.saturating_duration_since(snapshot.at) > FRESH);
        if better || stale {
            *known = Some(Snapshot { date, at });
        }
    }

    /// The estimate, unless the last answer is too long ago.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        self.now_at(Instant::now())
    }

    /// The estimate, however long ago the last answer is. Before the first one it is the epoch, by which nothing is over
    /// yet: the local clock is no substitute, for it may be minutes ahead.
    #[must_use]
    pub fn reckoned(&self) -> Timestamp {
        self.reckoned_at(Instant::now())
    }

    fn reckoned_at(&self, at: Instant) -> Timestamp {
        let snapshot = *self.0.lock();
        snapshot.and_then(|snapshot| snapshot.now(at)).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn now_at(&self, at: Instant) -> Option<Timestamp> {
        let snapshot = (*self.0.lock())?;
        let fresh = at.saturating_duration_since(snapshot.at) <= FRESH;
        if fresh { snapshot.now(at) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<Timestamp> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_estimate_goes_on_between_answers_and_never_ahead() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        assert_eq!(clock.now_at(start), None);
        clock.observe_at(at("2026-01-01T00:00:10Z"), start);
        let later = start + Duration::from_millis(900);
        assert_eq!(clock.now_at(later), at("2026-01-01T00:00:10.9Z"));
        // The same second, seen late: worse than what is known.
        clock.observe_at(at("2026-01-01T00:00:10Z"), later);
        assert_eq!(clock.now_at(later), at("2026-01-01T00:00:10.9Z"));
        // The next second, seen early: better.
        clock.observe_at(at("2026-01-01T00:00:11Z"), later);
        assert_eq!(clock.now_at(later), at("2026-01-01T00:00:11Z"));
    }

    #[test]
    fn a_clock_that_was_set_back_is_believed() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        clock.observe_at(at("2026-01-01T00:01:00Z"), start);
        clock.observe_at(at("2026-01-01T00:00:30Z"), start);
        assert_eq!(clock.now_at(start), at("2026-01-01T00:00:30Z"));
    }

    #[test]
    fn the_local_clock_is_never_taken_for_that_of_the_api_server() {
        for skew in [-5, 5].map(jiff::SignedDuration::from_mins) {
            let (clock, start) = (ServerClock::default(), Instant::now());
            assert_eq!(clock.reckoned_at(start), Timestamp::UNIX_EPOCH);
            let there = Timestamp::now() + skew;
            clock.observe_at(Some(there), start);
            for seconds in [0, 59, 61, 3_600] {
                let later = start + Duration::from_secs(seconds);
                assert_eq!(
                    clock.reckoned_at(later),
                    there + Duration::from_secs(seconds),
                    "after {seconds} s"
                );
            }
        }
    }

    #[test]
    fn an_old_view_is_none() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        clock.observe_at(at("2026-01-01T00:00:00Z"), start);
        assert_eq!(clock.now_at(start + Duration::from_secs(61)), None);
    }
}
