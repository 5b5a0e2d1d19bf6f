//! Pods that go, and growth, for which no quota is asked: charged as ever, whether there is room or not.

use std::sync::Arc;

use super::quota_set::ShareId;
use super::wait_order::{ClassId, QuotaId, WaitKey};
use super::{Decision, ReleaseQueue};
use crate::charge::Charge;
use crate::ledger::Claim;

impl ReleaseQueue {
    /// Releases this pod. `None` if it does not wait, or one of its quotas [rests](Self::rests), whose sums are incomplete
    /// then.
    pub fn let_go(&mut self, id: ClassId, key: &WaitKey) -> Option<Decision> {
        let class = self.classes.get(&id)?;
        let (charge, quotas) = (Arc::clone(class.charge()), Arc::clone(class.quotas()));
        let pod = class.pod(key)?;
        if quotas.iter().any(|quota| self.rests(*quota)) || !self.leave(id, key) {
            return None;
        }
        self.apply(Claim::Assumed, &quotas, &charge);
        for quota in quotas.iter() {
            if let Some(entry) = self.entries.get_mut(quota) {
                entry.update_lane(quotas.share(), |lane| lane.went());
            }
        }
        Some(Decision::Release { pod, charge, quotas })
    }

    /// Claims ([`Claim::Assumed`]) for this share what is taken more of each quota.
    pub fn let_grow(&mut self, share: ShareId, more: &[(QuotaId, Charge)]) {
        for (quota, charge) in more {
            self.apply_to(*quota, Claim::Assumed, share, charge);
        }
    }
}
