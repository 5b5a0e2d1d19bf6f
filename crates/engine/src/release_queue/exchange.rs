//! What several pods take together: one claim that changes, in place of claims that begin and end.

use super::ReleaseQueue;
use super::quota_entry::QuotaEntry;
use super::quota_set::ShareId;
use super::wait_order::QuotaId;
use crate::charge::Charge;
use crate::ledger::Claim;

/// What several pods take together of one quota, beside what is taken by others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Of [`Claim::Counted`].
    pub counted: Charge,
    /// Of [`Claim::Assumed`], beside what is counted.
    pub assumed: Charge,
}

impl Taken {
    /// Both together.
    #[must_use]
    pub fn total(&self) -> Charge {
        Charge::from_pairs(self.counted.iter().chain(self.assumed.iter()).cloned())
    }
}

/// Why what is taken changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A decision is made, confirmed or reverted, or something else is charged: what is no longer taken is free.
    Decision,
    /// A pod has ended: what is no longer taken is free, unless the entry is frozen (see [`ReleaseQueue::end`]).
    End,
    /// As [`Self::End`] in a frozen entry: what is no longer taken stays taken, as in flight.
    Doubt,
    /// A pod that another process has released: what is taken more is no longer in flight (see [`ReleaseQueue::arrive`]).
    Arrival,
}

impl ReleaseQueue {
    /// Puts what is taken now in the place of what was taken before. At no moment neither is.
    pub fn exchange(&mut self, quota: QuotaId, share: ShareId, before: &Taken, now: &Taken, why: Exchange) {
        if before == now {
            return;
        }
        let Some(entry) = self.entries.get_mut(&quota) else { return };
        let (was, is) = (before.total(), now.total());
        let makes_room = entry.exchange(share, before, now, why) && !was.above(&is).is_empty();
        if makes_room || why == Exchange::Arrival {
            self.wake(quota);
        }
        self.note_change(quota);
    }
}

impl QuotaEntry {
    /// Returns whether what is no longer taken is free.
    fn exchange(&mut self, share: ShareId, before: &Taken, now: &Taken, why: Exchange) -> bool {
        if why == Exchange::Arrival {
            self.arrived(&now.total().above(&before.total()));
        }
        self.apply(Claim::Counted, share, &now.counted);
        self.apply(Claim::Assumed, share, &now.assumed);
        self.revert(Claim::Counted, share, &before.counted);
        self.revert(Claim::Assumed, share, &before.assumed);
        let is_kept = why == Exchange::Doubt || why == Exchange::End && self.frozen;
        if is_kept {
            self.keep_in_flight(&before.total().above(&now.total()));
        }
        !is_kept
    }
}
