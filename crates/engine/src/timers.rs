//! When to look at what again.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// One moment for each key, in any unit of any clock: milliseconds, unless `T` says otherwise.
#[derive(Clone, Debug)]
pub struct Timers<K, T = u64> {
    moments: HashMap<K, T>,
    /// The same, in their order.
    order: BTreeSet<(T, K)>,
}

impl<K, T> Default for Timers<K, T> {
    fn default() -> Self {
        Self { moments: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Clone + Hash + Ord, T: Copy + Ord> Timers<K, T> {
    /// The key is due at this moment, and not at the one that was set before.
    pub fn set(&mut self, key: K, moment: T) {
        self.cancel(&key);
        self.moments.insert(key.clone(), moment);
        self.order.insert((moment, key));
    }

    /// The key is due at this moment, unless it is due before.
    pub fn set_earlier(&mut self, key: K, moment: T) {
        if self.moment(&key).is_none_or(|set| moment < set) {
            self.set(key, moment);
        }
    }

    /// The key is not due any more.
    pub fn cancel(&mut self, key: &K) {
        if let Some((key, moment)) = self.moments.remove_entry(key) {
            self.order.remove(&(moment, key));
        }
    }

    /// Takes the key that has been due for longest at the moment `now`; of several the least.
    pub fn pop_due(&mut self, now: T) -> Option<K> {
        self.next().filter(|moment| *moment <= now)?;
        let (_, key) = self.order.pop_first()?;
        self.moments.remove(&key);
        Some(key)
    }

    /// When the first key is due.
    #[must_use]
    pub fn next(&self) -> Option<T> {
        self.order.first().map(|(moment, _)| *moment)
    }

    /// When this key is due.
    #[must_use]
    pub fn moment(&self, key: &K) -> Option<T> {
        self.moments.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Timers;

    /// Keys and moments in no order.
    #[derive(Default)]
    struct Naive(Vec<(u8, u64)>);

    impl Naive {
        fn cancel(&mut self, key: u8) {
            self.0.retain(|(other, _)| *other != key);
        }

        fn set(&mut self, key: u8, moment: u64) {
            self.cancel(key);
            self.0.push((key, moment));
        }

        fn moment(&self, key: u8) -> Option<u64> {
            self.0.iter().find(|(other, _)| *other == key).map(|(_, moment)| *moment)
        }

        fn pop_due(&mut self, now: u64) -> Option<u8> {
            let due = self.0.iter().filter(|(_, moment)| *moment <= now);
            let (key, _) = due.min_by_key(|(key, moment)| (*moment, *key)).copied()?;
            self.cancel(key);
            Some(key)
        }
    }

    proptest! {
        #[test]
        fn they_do_what_a_list_does(steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u64..20), 0..60)) {
            let (mut timers, mut naive) = (Timers::<u8>::default(), Naive::default());
            for (step, key, moment) in steps {
                match step {
                    0 => {
                        timers.set(key, moment);
                        naive.set(key, moment);
                    }
                    1 => {
                        timers.set_earlier(key, moment);
                        naive.set(key, naive.moment(key).map_or(moment, |set| set.min(moment)));
                    }
                    2 => {
                        timers.cancel(&key);
                        naive.cancel(key);
                    }
                    _ => prop_assert_eq!(timers.pop_due(moment), naive.pop_due(moment)),
                }
                prop_assert_eq!(timers.next(), naive.0.iter().map(|(_, moment)| *moment).min());
                prop_assert_eq!(timers.moment(&key), naive.moment(key));
            }
        }
    }
}
