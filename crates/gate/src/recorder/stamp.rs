//! Which process made the last charge of a quota.

use std::hash::{BuildHasher, RandomState};

/// By whom the last charge of a quota was made: the last digits of its `status.charges`. The digits before them
/// count the charges.
///
/// Only so can a process whose write was not answered tell its own record from that of another leader that
/// charged the same amounts to the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(i64);

impl Stamp {
    const ALL: i64 = 1_000_000;

    /// A stamp that hardly any other process has.
    pub fn random() -> Self {
        Self::numbered(RandomState::new().hash_one(Self::ALL))
    }

    /// Never 0, which is the stamp of a quota that was never charged.
    pub fn numbered(number: u64) -> Self {
        Self(1 + i64::try_from(number % (Self::ALL as u64 - 1)).unwrap_or_default())
    }

    /// Whether we made the charge that was recorded with this.
    pub fn made(self, charges: i64) -> bool {
        charges.rem_euclid(Self::ALL) == self.0
    }

    /// What to record with `more` charges. Differs from what is recorded now unless there are none.
    pub fn after(self, recorded: i64, more: usize) -> i64 {
        if more == 0 {
            return recorded;
        }
        i64::try_from(more)
            .ok()
            .and_then(|more| recorded.div_euclid(Self::ALL).checked_add(more)?.checked_mul(Self::ALL))
            .and_then(|count| count.checked_add(self.0))
            // Another client has written nonsense; the count starts again.
            .unwrap_or(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_changes_the_count_and_tells_whose_it_is() {
        let (ours, theirs) = (Stamp::numbered(7), Stamp::numbered(8));
        for recorded in [0, 1, 41_000_008, i64::MAX, i64::MAX - 999_999, i64::MIN, -1, ours.after(0, 1)] {
            let charges = ours.after(recorded, 3);
            assert_ne!(charges, recorded);
            assert!(ours.made(charges) && !theirs.made(charges), "{recorded} became {charges}");
            assert_eq!(ours.after(recorded, 0), recorded, "no charge changes nothing");
        }
        assert!(!Stamp::numbered(u64::MAX).made(0) && !Stamp::numbered(0).made(0), "no process has stamp 0");
    }
}
