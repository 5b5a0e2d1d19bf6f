//! How long answers take: of which time 99 of 100 are not longer. In little memory, and of late.

use std::time::Duration;

/// Classes of times, each a tenth longer than the one before: from 10 µs to more than 10 s.
const CLASSES: usize = 150;
const LEAST: f64 = 1e-5;
const FACTOR: f64 = 1.1;
/// The last so many answers count, and as many before them: each whole, for the slow ones are few in each class.
const MANY: u32 = 1_000;

/// Times that answers took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    now: Counts,
    before: Counts,
}

#[derive(Clone, Debug)]
struct Counts {
    of_classes: Box<[u32; CLASSES]>,
    total: u32,
}

impl Default for Counts {
    fn default() -> Self {
        Self { of_classes: Box::new([0; CLASSES]), total: 0 }
    }
}

impl Times {
    pub(crate) fn took(&mut self, time: Duration) {
        let limits = limits();
        let class = limits.take(CLASSES - 1).take_while(|limit| *limit < time.as_secs_f64()).count();
        if let Some(count) = self.now.of_classes.get_mut(class) {
            *count += 1;
            self.now.total += 1;
        }
        if self.now.total >= MANY {
            self.before = std::mem::take(&mut self.now);
        }
    }

    /// The limit of the class in which the 99th of 100 is; `None`: there was none.
    pub(crate) fn p99(&self) -> Option<Duration> {
        let total = u64::from(self.now.total + self.before.total);
        let mut so_far = 0;
        let reaches = |(now, before): (&u32, &u32)| {
            so_far += u64::from(now + before) * 100;
            so_far >= total * 99
        };
        let mut counts = self.now.of_classes.iter().zip(self.before.of_classes.iter());
        let class = (total > 0).then(|| counts.position(reaches))??;
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
        assert_eq!(of((10..110).map(|n| (1, n * n * 100)).chain([(20_000, 400)])).as_deref(), Some("0.41ms"));
    }

    /// Two of a hundred, each in a class of its own or nearly so.
    #[test]
    fn slow_answers_that_are_few_are_not_lost() {
        let slow = (1..=40).map(|n| (1, n * n * 1_000));
        for fast in (1_000..3_000).step_by(40) {
            let few = of(slow.clone().flat_map(|slow| [(fast / 40, 400), slow]));
            assert!(few.as_deref().is_some_and(|few| few.len() > 4 && !few.contains('.')), "{fast}: {few:?}");
        }
    }
}
