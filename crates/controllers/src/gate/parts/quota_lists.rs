//! The lists of quotas that pods are charged to, shared: most pods of a namespace have the same.

use std::collections::HashSet;
use std::sync::Arc;

use sluice_engine::QuotaId;

/// Invariant: of equal lists there is one, so that a pod's record holds a pointer and equivalence classes compare quickly.
#[derive(Debug, Default)]
pub struct QuotaLists(HashSet<Arc<[QuotaId]>>);

impl QuotaLists {
    /// The shared copy of a sorted list.
    pub fn share(&mut self, quotas: &[QuotaId]) -> Arc<[QuotaId]> {
        if let Some(known) = self.0.get(quotas) {
            return Arc::clone(known);
        }
        let list: Arc<[QuotaId]> = Arc::from(quotas);
        self.0.insert(Arc::clone(&list));
        list
    }

    /// The quota is no more: no list with it is given out again.
    pub fn forget(&mut self, id: QuotaId) {
        self.0.retain(|list| !list.contains(&id));
    }
}
