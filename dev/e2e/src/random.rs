//! A small deterministic generator: a failure is repeated with its seed, whatever ran beside it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

/// splitmix64.
pub struct Random(u64);

impl Random {
    /// The generator of case `index` of the suite `stream` of the run `seed`. Each case has its own, so that the
    /// order in which cases run does not matter.
    #[must_use]
    pub fn of_case(seed: u64, stream: u64, index: usize) -> Self {
        let mut random = Self(seed ^ (stream << 56) ^ (index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i128, high: i128) -> i128 {
        low + i128::from(self.next()) % (high - low + 1)
    }

    /// True in `percent` of a hundred calls.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Up to `count` of `items`, perhaps with repetitions.
    pub fn several<T: Copy>(&mut self, items: &[T], count: usize) -> Vec<T> {
        (0..count).map(|_| self.pick(items)).collect()
    }
}

/// `SLUICE_SEED`, or the time.
#[must_use]
pub fn seed() -> u64 {
    match std::env::var("SLUICE_SEED") {
        Ok(text) => text.parse().expect("SLUICE_SEED must be a whole number"),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            u64::try_from(now.as_nanos() % 1_000_000_000_000).unwrap()
        }
    }
}
