//! How many questions a process takes in a second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many in a second.
const IN_A_SECOND: u32 = 20;
/// The time between two of them when there are more.
const APART: Duration = Duration::from_millis(1_000 / IN_A_SECOND as u64);
/// As many at once after a second without any.
const BURST: Duration = Duration::from_millis(950);

/// Lets 20 in a second through, however many come.
#[derive(Debug, Default)]
pub struct Rate(Mutex<Option<Instant>>);

impl Rate {
    /// Whether one more is taken now.
    pub(super) fn take(&self) -> bool {
        self.take_at(Instant::now())
    }

    /// Kept is when the next one would come if they came evenly.
    fn take_at(&self, now: Instant) -> bool {
        let mut due = self.0.lock();
        let next = due.map_or(now, |due| due.max(now));
        let is_taken = next.duration_since(now) <= BURST;
        if is_taken {
            *due = Some(next + APART);
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_in_a_second_are_taken_however_many_come() {
        let (rate, start) = (Rate::default(), Instant::now());
        let taken = |second: u32, every_ms: u32| {
            let moments = (0..1_000 / every_ms)
                .map(|n| Duration::from_millis(u64::from(second * 1_000 + n * every_ms)));
            moments.filter(|after| rate.take_at(start + *after)).count()
        };
        assert_eq!(taken(0, 1), 39, "twenty at once, and those of the second");
        assert_eq!((taken(1, 1), taken(2, 10)), (20, 20));
        assert_eq!(taken(3, 100), 10, "all of few");
        let at_once = (0..100).filter(|_| rate.take_at(start + Duration::from_secs(9))).count();
        assert_eq!(at_once, 20, "what was not asked for is not saved up");
    }
}
