//! How soon the same object may be written again.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_runtime::backoff::doubled;
use tokio::time::Instant;

use super::apply::Target;

/// An object that was left alone for so long is a new case.
const CALM: Duration = Duration::from_secs(120);

/// The latest writes of each object. Another client that insists on something different is answered ever more slowly.
#[derive(Debug, Default)]
pub(super) struct Pace(BTreeMap<Target, Series>);

/// Writes of one object, each less than [`CALM`] after the one before.
#[derive(Clone, Copy, Debug)]
struct Series {
    writes: u32,
    last: Instant,
}

/// How many writes follow each other at once, and the first and the longest pause after them. The Deployments get new pods
/// by each write; a status follows these pods.
const fn limits(target: &Target) -> (u32, Duration, Duration) {
    match target {
        Target::Deployment(_) => (5, Duration::from_secs(2), Duration::from_secs(300)),
        Target::Aaq(_) | Target::Mtq(_) => (20, Duration::from_secs(1), Duration::from_secs(10)),
    }
}

impl Pace {
    /// The object is written.
    pub(super) fn wrote(&mut self, target: &Target, now: Instant) {
        self.0.retain(|target, series| !is_over(*series, limits(target).2, now));
        let series = self.0.entry(target.clone()).or_insert(Series { writes: 0, last: now });
        *series = Series { writes: series.writes.saturating_add(1), last: now };
    }

    /// When the object may be written again; `None` if now.
    pub(super) fn held(&self, target: &Target, now: Instant) -> Option<Instant> {
        let (free, first, longest) = limits(target);
        let series = self.0.get(target).filter(|series| !is_over(**series, longest, now))?;
        let beyond = series.writes.checked_sub(free)?;
        Some(series.last + doubled(first, longest, beyond)).filter(|due| *due > now)
    }
}

/// The pause that is kept is no calm.
fn is_over(series: Series, longest: Duration, now: Instant) -> bool {
    now.saturating_duration_since(series.last) > longest + CALM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fight_over_an_object_is_answered_ever_more_slowly_until_it_is_over() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let (target, other) = (Target::Deployment("a"), Target::Deployment("b"));
        let mut pauses = Vec::new();
        for _ in 0..14 {
            let due = pace.held(&target, now).unwrap_or(now);
            pauses.push((due - now).as_secs());
            now = due;
            pace.wrote(&target, now);
        }
        assert_eq!(pauses, [0, 0, 0, 0, 0, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert!(pace.held(&target, now).is_some());
        assert_eq!(pace.held(&other, now), None, "another object");
        assert_eq!(pace.held(&target, now + Duration::from_secs(421)), None, "it was calm");
        pace.wrote(&target, now + Duration::from_secs(421));
        assert_eq!(pace.held(&target, now + Duration::from_secs(421)), None, "a new case");
    }
}
