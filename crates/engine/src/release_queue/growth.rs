//! Pods that run and are to take more: they cannot wait, so there is room for it or there is not.

use super::ReleaseQueue;
use super::equivalence_class::Reason;
use super::quota_set::ShareId;
use super::wait_order::{Patience, QuotaId};
use crate::charge::Charge;
use crate::ledger::Claim;

impl ReleaseQueue {
    /// Claims ([`Claim::Assumed`]) for this share what is taken more of each quota, all of it or nothing. Of what is kept
    /// for a pod that has waited too long it takes nothing either, in the beginning of that pod's turn:
    /// as long as pods are to be patient.
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
    pub fn can_grow(&self, more: &[(QuotaId, Charge)], patience: Patience) -> Result<(), Reason> {
        match more.iter().find_map(|(quota, charge)| self.lacks_room_to_grow(*quota, charge, patience)) {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }

    fn lacks_room_to_grow(&self, quota: QuotaId, charge: &Charge, patience: Patience) -> Option<Reason> {
        let entry = self.entries.get(&quota)?;
        let excess = entry.ledger().excess(charge, None);
        if !excess.is_empty() {
            return Some(Reason { quota, excess, behind: None });
        }
        // A turn may last for hours, and what runs cannot wait for its end.
        let kept =
            entry.kept.filter(|kept| patience.now_ms.saturating_sub(kept.since_ms) <= patience.limit_ms)?;
        let ahead = self.classes.get(&kept.class)?;
        let excess = entry.ledger().excess(charge, Some(&ahead.charge));
        let behind = ahead.eldest().and_then(|(_, key)| ahead.pod(&key));
        (!excess.is_empty()).then_some(Reason { quota, excess, behind })
    }
}
