//! Pods that run and are to take more: they cannot wait, so there is room for it or there is not.

use super::ReleaseQueue;
use super::equivalence_class::Reason;
use super::quota_set::ShareId;
use super::wait_order::{Patience, QuotaId};
use crate::charge::Charge;
use crate::ledger::Claim;

impl ReleaseQueue {
    /// Claims ([`Claim::Assumed`]) for this share what is taken more of each quota, all of it or nothing. Room is kept for pods that have
    /// waited too long, as in [`ReleaseQueue::decide`].
    ///
    /// # Errors
    /// The first quota without room for it, or with room that is kept for a pod that has waited long.
    pub fn grow(
        &mut self,
        share: ShareId,
        more: &[(QuotaId, Charge)],
        patience: Patience,
    ) -> Result<(), Reason> {
        self.can_grow(more, patience)?;
        for (quota, charge) in more {
            self.apply_to(*quota, Claim::Assumed, share, charge);
        }
        Ok(())
    }

    /// Whether [`Self::grow`] would claim it.
    ///
    /// # Errors
    /// As there.
    pub fn can_grow(&mut self, more: &[(QuotaId, Charge)], patience: Patience) -> Result<(), Reason> {
        for (quota, _) in more {
            self.reserve(*quota, patience);
        }
        match more.iter().find_map(|(quota, charge)| self.lacks_room_to_grow(*quota, charge)) {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }

    fn lacks_room_to_grow(&self, quota: QuotaId, charge: &Charge) -> Option<Reason> {
        let entry = self.entries.get(&quota)?;
        let excess = entry.ledger().excess(charge, None);
        if !excess.is_empty() {
            return Some(Reason { quota, excess, behind: None });
        }
        let (id, _) = entry.reserving.as_ref()?;
        let ahead = self.classes.get(id)?;
        let excess = entry.ledger().excess(charge, Some(&ahead.charge));
        let behind = ahead.eldest().and_then(|(_, key)| ahead.pod(&key));
        (!excess.is_empty()).then_some(Reason { quota, excess, behind })
    }
}
