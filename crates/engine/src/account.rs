//! One quota's account, and the claims on the accounts of a [`Book`].

use std::collections::BTreeSet;

use crate::book::Book;
use crate::charge::{Amount, Charge};
use crate::ledger::{Claim, Ledger};
use crate::queue::{ClassId, QuotaId, WaitKey};
use crate::resource::Resource;

/// A quota: its ledger and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) ledger: Ledger,
    /// The head of each class that waits for this quota and could ever fit.
    pub(crate) heads: BTreeSet<(WaitKey, ClassId)>,
    /// Classes that could not fit even if the quotas were empty.
    pub(crate) parked: BTreeSet<ClassId>,
    pub(crate) held: usize,
    /// What ends makes no room, see [`Book::freeze`].
    frozen: bool,
}

impl Book {
    /// Adds a claim to each of the quotas.
    pub fn apply(&mut self, claim: Claim, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(account) = self.accounts.get_mut(quota) {
                account.ledger.apply(claim, charge);
            }
        }
    }

    /// Takes a claim back, exactly as it was added; whoever waits for these quotas is looked at again.
    pub fn revert(&mut self, claim: Claim, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(account) = self.accounts.get_mut(quota) {
                account.ledger.revert(claim, charge);
                self.woken.insert(*quota);
            }
        }
    }

    /// A pod that was, or may have been, released has ended: its claim is taken back, unless the account is
    /// frozen. Then what it took stays taken, as in flight.
    pub fn end(&mut self, claim: Claim, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(account) = self.accounts.get_mut(quota) {
                account.ledger.revert(claim, charge);
                if account.frozen {
                    account.ledger.apply(Claim::InFlight, charge);
                } else {
                    self.woken.insert(*quota);
                }
            }
        }
    }

    /// An assumed charge was seen released: it is counted from now on.
    pub fn confirm(&mut self, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(account) = self.accounts.get_mut(quota) {
                account.ledger.revert(Claim::Assumed, charge);
                account.ledger.apply(Claim::Counted, charge);
            }
        }
    }

    /// A pod that was not assumed here is seen released by somebody else: counted, and no longer in flight.
    pub fn arrive(&mut self, quotas: &[QuotaId], charge: &Charge) {
        for quota in quotas {
            if let Some(account) = self.accounts.get_mut(quota) {
                account.ledger.arrive(charge);
                account.ledger.apply(Claim::Counted, charge);
                self.woken.insert(*quota);
            }
        }
    }

    /// See [`Ledger::honour`].
    pub fn honour(
        &mut self,
        quota: QuotaId,
        recorded: impl IntoIterator<Item = (Resource, Amount)>,
        unrecorded: &[&Charge],
    ) -> bool {
        self.accounts.get_mut(&quota).is_some_and(|account| account.ledger.honour(recorded, unrecorded))
    }

    /// Until [`Self::forget_in_flight`], what ends stays taken: somebody else gives away room of this quota
    /// too, and may have given away the room of a pod before its end is seen here.
    pub fn freeze(&mut self, quota: QuotaId) {
        if let Some(account) = self.accounts.get_mut(&quota) {
            account.frozen = true;
        }
    }

    /// Forgets what was in flight and ends [`Self::freeze`]. Returns whether anything was in flight.
    pub fn forget_in_flight(&mut self, quota: QuotaId) -> bool {
        let any = self.accounts.get_mut(&quota).is_some_and(|account| {
            account.frozen = false;
            account.ledger.forget_in_flight()
        });
        if any {
            self.woken.insert(quota);
        }
        any
    }
}
