//! How long answers take: of which time 99 of 100 are not longer. In little memory, and of late.

use std::time::Duration;

/// Classes of times, each a tenth longer than the one before: from 10 µs to more than 10 s.
const CLASSES: usize = 150;
const LEAST: f64 = 1e-5;
const FACTOR: f64 = 1.1;
/// From so many on all counts are halved, so that what was long ago counts less and less.
const MANY: u32 = 2_000;

/// Times that answers took.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    counts: Box<[u32; CLASSES]>,
    total: u32,
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: Box::new([0; CLASSES]), total: 0 }
    }
}

impl Times {
    pub(crate) fn took(&mut self, time: Duration) {
        let limits = limits();
        let class = limits.take(CLASSES - 1).take_while(|limit| *limit < time.as_secs_f64()).count();
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
            self.total += 1;
        }
        if self.total >= MANY {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// The limit of the class in which the 99th of 100 is; `None`: there was none.
    pub(crate) fn p99(&self) -> Option<Duration> {
        let wanted = u64::from(self.total) * 99;
        let mut so_far = 0;
        let reaches = |count: &u32| {
            so_far += u64::from(*count) * 100;
            so_far >= wanted
        };
        let class = (self.total > 0).then(|| self.counts.iter().position(reaches))??;
        limits().nth(class).map(Duration::from_secs_f64)
    }
}

fn limits() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(LEAST), |limit| Some(limit * FACTOR))
}

/// For people: `0.41ms`, `12ms`.
pub(crate) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    match millis {
        ..1.0 => format!("{millis:.2}ms"),
        ..10.0 => format!("{millis:.1}ms"),
        _ => format!("{millis:.0}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = (usize, u64)>) -> Option<String> {
        let mut all = Times::default();
        for (count, micros) in times {
            (0..count).for_each(|_| all.took(Duration::from_micros(micros)));
        }
        all.p99().map(millis)
    }

    #[test]
    fn it_is_what_99_of_100_do_not_exceed_by_more_than_a_tenth() {
        assert_eq!(of([]), None);
        assert_eq!(of([(1, 3)]).as_deref(), Some("0.01ms"));
        assert_eq!(of([(1, 1_000)]).as_deref(), Some("1.1ms"));
        assert_eq!(of([(99, 400), (1, 500_000)]).as_deref(), Some("0.41ms"));
        assert_eq!(of([(98, 400), (2, 100_000)]).as_deref(), Some("104ms"));
        assert_eq!(of([(1, 3_600_000_000)]).as_deref(), Some("14707ms"), "the longest class has no limit");
    }

    #[test]
    fn what_was_long_ago_counts_less() {
        assert_eq!(of([(1_900, 500_000), (20_000, 400)]).as_deref(), Some("0.41ms"));
    }
}
