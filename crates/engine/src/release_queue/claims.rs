//! Claims on the ledgers of a [`ReleaseQueue`]: applied, reverted, confirmed.

use super::ReleaseQueue;
use super::quota_set::{QuotaSet, ShareId};
use super::wait_order::QuotaId;
use crate::charge::{Amount, Charge};
use crate::ledger::Claim;
use crate::resource::Resource;

impl ReleaseQueue {
    /// Adds a claim to each of the quotas.
    pub fn apply(&mut self, claim: Claim, quotas: &QuotaSet, charge: &Charge) {
        for quota in quotas.iter() {
            self.apply_to(*quota, claim, quotas.share(), charge);
        }
    }

    /// Adds a claim to one quota.
    pub fn apply_to(&mut self, quota: QuotaId, claim: Claim, share: ShareId, charge: &Charge) {
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.apply(claim, share, charge);
        }
        self.note_change(quota);
    }

    /// Takes a claim back, exactly as it was added; the pods that wait for these quotas are looked at again.
    pub fn revert(&mut self, claim: Claim, quotas: &QuotaSet, charge: &Charge) {
        for quota in quotas.iter() {
            self.revert_from(*quota, claim, quotas.share(), charge);
        }
    }

    /// Takes a claim back from one quota, see [`Self::revert`].
    pub fn revert_from(&mut self, quota: QuotaId, claim: Claim, share: ShareId, charge: &Charge) {
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.revert(claim, share, charge);
            self.wake(quota);
        }
        self.note_change(quota);
    }

    /// A pod that was, or may have been, released has ended: its claim is taken back, unless the entry is
    /// frozen. Then what it took stays taken, as in flight.
    pub fn end(&mut self, claim: Claim, quotas: &QuotaSet, charge: &Charge) {
        for quota in quotas.iter() {
            let entry = self.entries.get_mut(quota);
            if entry.is_some_and(|entry| entry.end(claim, quotas.share(), charge)) {
                self.wake(*quota);
            }
            self.note_change(*quota);
        }
    }

    /// An assumed charge was seen released: it is counted from now on.
    pub fn confirm(&mut self, quotas: &QuotaSet, charge: &Charge) {
        for quota in quotas.iter() {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.confirm(charge);
            }
        }
    }

    /// A pod that was not assumed here is seen released by another process: counted, and no longer in flight.
    pub fn arrive(&mut self, quotas: &QuotaSet, charge: &Charge) {
        for quota in quotas.iter() {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.arrive(quotas.share(), charge);
                self.wake(*quota);
            }
            self.note_change(*quota);
        }
    }

    /// What a claim takes no longer of a quota stays taken, as in flight.
    pub fn keep_in_flight(&mut self, quota: QuotaId, charge: &Charge) {
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.keep_in_flight(charge);
        }
        self.note_change(quota);
    }

    /// See [`Ledger::reserve_in_flight`](crate::Ledger::reserve_in_flight).
    pub fn reserve_in_flight(
        &mut self,
        quota: QuotaId,
        recorded: impl IntoIterator<Item = (Resource, Amount)>,
        unrecorded: &[&Charge],
    ) -> bool {
        let entry = self.entries.get_mut(&quota);
        let added = entry.is_some_and(|entry| entry.reserve_in_flight(recorded, unrecorded));
        self.note_change(quota);
        added
    }

    /// Until [`Self::forget_in_flight`], what ends stays taken: another leader gives away room of this quota
    /// too, and may have given away the room of a pod before its end is seen here.
    pub fn freeze(&mut self, quota: QuotaId) {
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.frozen = true;
        }
    }

    /// See [`Self::freeze`].
    #[must_use]
    pub fn is_frozen(&self, quota: QuotaId) -> bool {
        self.entries.get(&quota).is_some_and(|entry| entry.frozen)
    }

    /// Forgets what was in flight and ends [`Self::freeze`]. Returns whether anything was in flight.
    pub fn forget_in_flight(&mut self, quota: QuotaId) -> bool {
        let any = self.entries.get_mut(&quota).is_some_and(super::QuotaEntry::forget_in_flight);
        if any {
            self.wake(quota);
        }
        self.note_change(quota);
        any
    }
}
