//! What is in the way of pods that wait.

use super::ReleaseQueue;
use super::equivalence_class::{EquivalenceClass, Reason};
use super::wait_order::{ClassId, PodId, QuotaId};

impl ReleaseQueue {
    /// What quotas have against the release of a pod of this class as things are, in the order of their ids: those without
    /// room; where all have room, those that keep it for a pod that has waited longer. Empty: the next pod goes when it is
    /// looked at.
    #[must_use]
    pub fn obstacles(&self, id: ClassId) -> Vec<Reason> {
        let Some(class) = self.classes.get(&id) else { return Vec::new() };
        let exceeded = class.quotas.iter().filter_map(|quota| {
            let excess = self.entries.get(quota)?.ledger().excess(&class.charge, None);
            (!excess.is_empty()).then_some(Reason { quota: *quota, excess, behind: None })
        });
        let exceeded: Vec<Reason> = exceeded.collect();
        if !exceeded.is_empty() {
            return exceeded;
        }
        let kept = class.quotas.iter().filter_map(|quota| {
            let (_, ahead) = self.ahead(*quota, id).filter(|(_, ahead)| !class.hurries_before(ahead))?;
            let excess = self.entries.get(quota)?.ledger().excess(&class.charge, Some(&ahead.charge));
            let behind = ahead.eldest().and_then(|(_, key)| ahead.pod(&key));
            (!excess.is_empty()).then_some(Reason { quota: *quota, excess, behind })
        });
        kept.collect()
    }

    /// Another class that the quota keeps room for.
    pub(super) fn ahead(&self, quota: QuotaId, id: ClassId) -> Option<(ClassId, &EquivalenceClass)> {
        let kept = self.entries.get(&quota)?.kept.filter(|kept| kept.class != id)?;
        Some((kept.class, self.classes.get(&kept.class)?))
    }

    /// Of the pods that wait for this quota the one that was created first, with the second of its creation.
    #[must_use]
    pub fn oldest(&self, quota: QuotaId) -> Option<(i64, PodId)> {
        self.entries.get(&quota)?.waiting.first().copied()
    }
}
