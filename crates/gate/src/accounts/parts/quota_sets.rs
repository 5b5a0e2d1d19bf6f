//! The sets of quotas that pods are charged to, shared: most pods of a namespace have the same.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_engine::{QuotaId, QuotaSet, ShareId};

/// Invariant: of equal sets there is one, so that a pod's record holds a pointer and equivalence classes compare quickly.
#[derive(Debug, Default)]
pub struct QuotaSets {
    /// A namespace has few.
    by_share: HashMap<ShareId, Vec<Arc<QuotaSet>>>,
    none: Arc<QuotaSet>,
}

impl QuotaSets {
    /// The shared copy of a set; `quotas` in the order of ids.
    pub fn share(&mut self, share: ShareId, quotas: &[QuotaId]) -> Arc<QuotaSet> {
        if quotas.is_empty() {
            return Arc::clone(&self.none);
        }
        let known = self.by_share.entry(share).or_default();
        if let Some(set) = known.iter().find(|set| set.iter().eq(quotas)) {
            return Arc::clone(set);
        }
        let set = Arc::new(QuotaSet::new(share, quotas.iter().copied()));
        known.push(Arc::clone(&set));
        set
    }

    /// Only these quotas are about the pods of this share: no set of it with another one is given out again.
    pub fn keep_only(&mut self, share: ShareId, quotas: &[QuotaId]) {
        if let Some(known) = self.by_share.get_mut(&share) {
            known.retain(|set| set.iter().all(|id| quotas.contains(id)));
            if known.is_empty() {
                self.by_share.remove(&share);
            }
        }
    }
}
