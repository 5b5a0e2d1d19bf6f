//! How a quota was in the last ten minutes, as far as this process saw it.

use std::collections::VecDeque;

/// Seconds that are kept.
pub(crate) const KEPT: i64 = 600;
/// Seconds of one step: of what changes more often the last is kept, so that a quota takes two kilobytes at most.
const STEP: i64 = 5;

/// A quota at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Seconds since the epoch.
    pub at: i64,
    /// Of the fullest key.
    pub percent: u32,
    pub held: u32,
}

/// Samples in the order of time; each holds until the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History(VecDeque<Sample>);

impl History {
    pub fn add(&mut self, sample: Sample) {
        match self.0.back_mut() {
            Some(last) if (last.percent, last.held) == (sample.percent, sample.held) => return,
            Some(last) if last.at / STEP == sample.at / STEP => *last = Sample { at: last.at, ..sample },
            _ => self.0.push_back(sample),
        }
        let begin = sample.at - KEPT;
        // The last one before the time that is shown says how it began.
        while self.0.get(1).is_some_and(|second| second.at <= begin) {
            self.0.pop_front();
        }
    }

    /// Those of the last ten minutes; the first begins with them, or when the quota was seen first.
    pub fn since(&self, now: i64) -> Vec<Sample> {
        let begin = now - KEPT;
        let first = self.0.iter().rposition(|sample| sample.at <= begin).unwrap_or(0);
        self.0.iter().skip(first).map(|sample| Sample { at: sample.at.max(begin), ..*sample }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_are_kept_and_the_value_before_them() {
        let mut history = History::default();
        for (at, percent) in [(0, 10), (100, 20), (101, 30), (300, 30), (701, 40), (5_000, 50)] {
            history.add(Sample { at, percent, held: 0 });
        }
        let shown = |now| history.since(now).iter().map(|it| (it.at, it.percent)).collect::<Vec<_>>();
        assert_eq!(shown(5_000), [(4_400, 40), (5_000, 50)]);
        let mut busy = History::default();
        (0..100_000).for_each(|at| busy.add(Sample { at, percent: u32::try_from(at % 7).unwrap(), held: 1 }));
        assert!(busy.0.len() <= 122, "{}", busy.0.len());
    }
}
