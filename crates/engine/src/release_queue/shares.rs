//! What each share of a quota takes: for a quota over several namespaces, what each of them does.

use std::collections::{BTreeSet, HashMap};

use super::quota_set::ShareId;
use crate::charge::{Amount, Charge};
use crate::ledger::Ledger;

/// The sums of the shares of one quota.
///
/// Invariant: for each resource the sums of all shares make up what is counted and assumed in the ledger. What is in flight
/// on account of another leader belongs to no share, for a record does not tell whose it is. A share that takes nothing has
/// no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// One amount for each line of the ledger, in the order of the lines.
    sums: HashMap<ShareId, Box<[Amount]>>,
    /// Shares that may take something else than when they were asked for last.
    changed: BTreeSet<ShareId>,
}

impl Shares {
    /// The shares that take something, in no order, with one amount for each line of the ledger.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ShareId, &[Amount])> {
        self.sums.iter().map(|(share, sums)| (*share, &**sums))
    }

    /// What one share takes, one amount for each line of the ledger; empty if it takes nothing.
    #[must_use]
    pub fn get(&self, share: ShareId) -> &[Amount] {
        self.sums.get(&share).map_or(&[], |sums| sums)
    }

    /// How many shares take something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether no share takes anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// The shares that may take something else than when this was asked last.
    pub(super) fn take_changed(&mut self) -> BTreeSet<ShareId> {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn add(&mut self, ledger: &Ledger, share: ShareId, charge: &Charge) {
        self.change(ledger, share, charge, Amount::saturating_add);
    }

    pub(super) fn subtract(&mut self, ledger: &Ledger, share: ShareId, charge: &Charge) {
        self.change(ledger, share, charge, Amount::saturating_sub);
    }

    fn change(
        &mut self,
        ledger: &Ledger,
        share: ShareId,
        charge: &Charge,
        change: impl Fn(Amount, Amount) -> Amount,
    ) {
        self.changed.insert(share);
        let lines = ledger.lines();
        let sums = self.sums.entry(share).or_insert_with(|| vec![Amount::ZERO; lines.len()].into());
        for (line, sum) in lines.iter().zip(sums.iter_mut()) {
            if let Some(amount) = charge.get(&line.resource) {
                *sum = change(*sum, amount);
            }
        }
        if sums.iter().all(|sum| sum.is_zero()) {
            self.sums.remove(&share);
        }
    }
}
