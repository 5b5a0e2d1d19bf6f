//! How soon the same object may be written again.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_runtime::backoff::doubled;
use tokio::time::Instant;

/// How many writes of an object follow each other at once, and the first and the longest pause after them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) free: u32,
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
    /// An object that was left alone for so long, beyond the pause that was kept, is a new case.
    pub(crate) calm: Duration,
}

/// The latest writes of each object. Another client that insists on something different is answered ever more slowly, and
/// keeps none of the other objects from being put back.
#[derive(Debug)]
pub(crate) struct Pace<K>(BTreeMap<K, Series>);

/// Writes of one object, each less than [`Limits::calm`] after the pause that followed the one before.
#[derive(Clone, Copy, Debug)]
struct Series {
    writes: u32,
    last: Instant,
    limits: Limits,
}

impl Series {
    /// When the object may be written again.
    fn due(&self) -> Instant {
        let beyond = self.writes.checked_sub(self.limits.free);
        let pause = beyond.map(|beyond| doubled(self.limits.first, self.limits.longest, beyond));
        self.last + pause.unwrap_or_default()
    }

    fn end(&self) -> Instant {
        self.due() + self.limits.calm
    }
}

impl<K> Default for Pace<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Pace<K> {
    /// The object is written.
    pub(crate) fn wrote(&mut self, object: &K, limits: Limits, now: Instant) {
        self.0.retain(|_, series| now <= series.end());
        let series = self.0.entry(object.clone()).or_insert(Series { writes: 0, last: now, limits });
        *series = Series { writes: series.writes.saturating_add(1), last: now, limits };
    }

    /// When the object may be written again; `None` if now.
    pub(crate) fn held(&self, object: &K, now: Instant) -> Option<Instant> {
        self.0.get(object).filter(|series| now <= series.end()).map(Series::due).filter(|due| *due > now)
    }

    /// The objects of which more was written than follows at once, and when that counts no more.
    pub(crate) fn exceeded(&self, now: Instant) -> impl Iterator<Item = (&K, Instant)> {
        let is_exceeded = move |series: &Series| series.writes > series.limits.free && now <= series.end();
        self.0
            .iter()
            .filter(move |(_, series)| is_exceeded(series))
            .map(|(object, series)| (object, series.end()))
    }

    /// When the writes so far count no more; `None` if they do not.
    pub(crate) fn forgotten(&self, object: &K, now: Instant) -> Option<Instant> {
        self.0.get(object).map(Series::end).filter(|end| now <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        free: 5,
        first: Duration::from_secs(2),
        longest: Duration::from_secs(300),
        calm: Duration::from_secs(60),
    };

    #[test]
    fn a_fight_over_an_object_is_answered_ever_more_slowly_until_it_is_over() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let (object, other) = ("a", "b");
        let mut pauses = Vec::new();
        for _ in 0..14 {
            let due = pace.held(&object, now).unwrap_or(now);
            pauses.push((due - now).as_secs());
            now = due;
            pace.wrote(&object, LIMITS, now);
        }
        assert_eq!(pauses, [0, 0, 0, 0, 0, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert!(pace.held(&object, now).is_some());
        let fought_over: Vec<_> = pace.exceeded(now).collect();
        assert_eq!(fought_over, [(&object, now + Duration::from_secs(360))]);
        assert_eq!(pace.held(&other, now), None, "another object");
        let calm = now + Duration::from_secs(361);
        assert_eq!((pace.held(&object, calm), pace.forgotten(&object, calm)), (None, None), "it was calm");
        pace.wrote(&object, LIMITS, calm);
        assert_eq!(pace.held(&object, calm), None, "a new case");
        assert_eq!(pace.exceeded(calm).count(), 0);
    }

    /// What matters within seconds is put back at once however often that was so.
    #[test]
    fn a_series_ends_after_the_calm_of_its_limits() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let limits = Limits { calm: Duration::from_secs(10), ..LIMITS };
        for number in 0..50 {
            let now = start + Duration::from_secs(30 * number);
            assert_eq!(pace.held(&"a", now), None);
            pace.wrote(&"a", limits, now);
        }
    }

    /// Certificates may be renewed every two minutes.
    #[test]
    fn writes_with_some_time_between_them_are_no_fight() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        for number in 0..50 {
            let now = start + Duration::from_secs(120 * number);
            for _ in 0..LIMITS.free {
                assert_eq!(pace.held(&"a", now), None);
                pace.wrote(&"a", LIMITS, now);
            }
        }
    }
}
