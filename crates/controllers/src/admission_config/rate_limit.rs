//! How often the same object may be written.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::observe::Kind;

/// This many writes of an object may follow each other at once.
const BURST: usize = 20;
/// In this time.
const WINDOW: Duration = Duration::from_secs(60);

/// The latest writes of each object, at most [`BURST`] of them. A controller that insists on another form of one object
/// keeps none of the others from being put back.
#[derive(Debug, Default)]
pub(super) struct WriteRateLimit(BTreeMap<Kind, VecDeque<Instant>>);

impl WriteRateLimit {
    /// The object was written.
    pub(super) fn wrote(&mut self, kind: Kind, now: Instant) {
        let writes = self.0.entry(kind).or_default();
        if writes.len() >= BURST {
            writes.pop_front();
        }
        writes.push_back(now);
    }

    /// When the object may be written again; `None` if now.
    pub(super) fn held(&self, kind: Kind, now: Instant) -> Option<Instant> {
        let writes = self.0.get(&kind).filter(|writes| writes.len() >= BURST)?;
        writes.front().map(|oldest| *oldest + WINDOW).filter(|due| *due > now)
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, Kind, WINDOW, WriteRateLimit};
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn a_burst_is_free_and_then_the_oldest_write_of_the_object_has_to_be_over() {
        let start = Instant::now();
        let mut limit = WriteRateLimit::default();
        for number in 0..BURST {
            assert_eq!(limit.held(Kind::Mutating, start), None, "write {number}");
            limit.wrote(Kind::Mutating, start);
        }
        let later = start + Duration::from_secs(1);
        assert_eq!(limit.held(Kind::Mutating, later), Some(start + WINDOW));
        assert_eq!(limit.held(Kind::Validating, later), None, "another object");
        assert_eq!(limit.held(Kind::Mutating, start + WINDOW), None);
        limit.wrote(Kind::Mutating, start + WINDOW);
        assert_eq!(limit.held(Kind::Mutating, start + WINDOW), None, "all but one are over");
        for _ in 0..BURST {
            limit.wrote(Kind::Mutating, start + WINDOW);
        }
        assert_eq!(limit.held(Kind::Mutating, start + WINDOW), Some(start + WINDOW * 2));
    }
}
