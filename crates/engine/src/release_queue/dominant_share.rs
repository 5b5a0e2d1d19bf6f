//! How much of a quota one share takes, to be compared with what others take.

use std::cmp::Ordering;

use crate::charge::Amount;
use crate::ledger::Ledger;

/// Of all limits of a quota the largest part that a share takes: an exact fraction.
#[derive(Clone, Copy, Debug)]
pub(super) struct DominantShare {
    used: u128,
    /// 0 only if more than 0 is used of a limit of 0: more than any part.
    hard: u128,
}

impl DominantShare {
    /// Nothing is taken.
    pub(super) const NONE: Self = Self { used: 0, hard: 1 };

    /// Of the sums of a share, one for each line of the ledger.
    pub(super) fn of(ledger: &Ledger, sums: &[Amount]) -> Self {
        let parts = ledger.lines().iter().zip(sums).map(|(line, sum)| Self::part(*sum, line.hard));
        parts.max().unwrap_or(Self::NONE)
    }

    fn part(used: Amount, hard: Amount) -> Self {
        let positive = |amount: Amount| u128::try_from(amount.nanos()).unwrap_or(0);
        match positive(used) {
            0 => Self::NONE,
            used => Self { used, hard: positive(hard) },
        }
    }
}

impl Ord for DominantShare {
    fn cmp(&self, other: &Self) -> Ordering {
        product(self.used, other.hard).cmp(&product(other.used, self.hard))
    }
}

impl PartialOrd for DominantShare {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DominantShare {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DominantShare {}

/// The exact product: its upper and its lower 128 bits.
fn product(one: u128, other: u128) -> (u128, u128) {
    const LOWER: u128 = u64::MAX as u128;
    if let Some(product) = one.checked_mul(other) {
        return (0, product);
    }
    let (one_high, one_low) = (one >> 64, one & LOWER);
    let (other_high, other_low) = (other >> 64, other & LOWER);
    let (middle, middle_carry) = (one_high * other_low).overflowing_add(one_low * other_high);
    let (low, low_carry) = (one_low * other_low).overflowing_add(middle << 64);
    let high = one_high * other_high + (middle >> 64) + (u128::from(middle_carry) << 64);
    (high + u128::from(low_carry), low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;

    fn of(used: i128, hard: i128) -> DominantShare {
        DominantShare::part(Amount::from_nanos(used), Amount::from_nanos(hard))
    }

    #[test]
    fn parts_are_compared_exactly_however_large_the_numbers() {
        assert_eq!(of(1, 3), of(2, 6));
        assert!(of(1, 3) < of(333_333_333_333_333_334, 1_000_000_000_000_000_000));
        let most = i128::MAX;
        assert!(of(most - 1, most) < of(most, most));
        assert!(of(most - 2, most - 1) < of(most - 1, most), "1 - 1/n grows with n");
        assert_eq!(of(most, most), of(1, 1));
    }

    #[test]
    fn the_square_of_the_largest_number_is_exact() {
        assert_eq!(product(u128::MAX, u128::MAX), (u128::MAX - 1, 1));
        assert_eq!(product(u128::MAX, 1 << 64), (u128::from(u64::MAX), u128::MAX << 64));
    }

    #[test]
    fn of_a_limit_of_nothing_any_use_is_more_than_all() {
        assert!(of(1, 0) > of(i128::MAX, 1));
        assert_eq!(of(1, 0), of(2, 0));
        assert_eq!(of(0, 0), DominantShare::NONE);
        assert_eq!(of(-1, 5), DominantShare::NONE);
    }

    #[test]
    fn the_largest_part_of_any_limit_counts() {
        let hard = [(Resource::Cpu, 10), (Resource::Memory, 4)];
        let ledger = Ledger::new(hard.map(|(resource, hard)| (resource, Amount::from_nanos(hard))));
        let sums = [3, 2].map(Amount::from_nanos);
        assert_eq!(DominantShare::of(&ledger, &sums), of(1, 2));
        assert_eq!(DominantShare::of(&ledger, &[]), DominantShare::NONE);
    }
}
