//! What a quota's status says of keys that its managed quota limits: what that says, and until then what was recorded.

use std::sync::Arc;

use sluice_engine::managed::managed;
use sluice_engine::{CompiledQuota, ManagedStatus, QuotaId, StatusTarget, status_target};
use sluice_index::{Key, QuotaRecord};

use super::State;

impl State {
    /// The managed quota of a quota says this from now on; `None`: it has none.
    pub fn set_managed_status(&mut self, quota: &Key, status: Option<ManagedStatus>) {
        self.managed.set(quota, status);
        let namespace = self.namespaces.id(&quota.namespace);
        if let Some(id) = namespace.and_then(|namespace| self.quotas.find(namespace, &quota.name)) {
            self.writes.mark(id);
        }
    }

    /// The status that a quota should have; `None` as long as its sums are not complete.
    pub fn status_of(&self, id: QuotaId) -> Option<StatusTarget> {
        let quota = self.quotas.get(id)?;
        let (compiled, ledger) = (self.complete(id)?, self.queue.ledger(id)?);
        Some(status_target(compiled, ledger, &self.managed_status(quota, compiled)))
    }

    /// While the managed quota says nothing of a key, as in the moments after a change of limits or of leaders, the last value
    /// stays; a 0 would be wrong.
    fn managed_status(&self, quota: &QuotaRecord, compiled: &CompiledQuota) -> ManagedStatus {
        let mut keys = managed(compiled).map(|entry| &entry.key).peekable();
        let Some(namespace) = self.namespaces.get(quota.namespace).filter(|_| keys.peek().is_some()) else {
            return ManagedStatus::default();
        };
        let key = Key { namespace: Arc::clone(&namespace.name), name: Arc::clone(&quota.name) };
        let mut status = self.managed.get(&key).cloned().unwrap_or_default();
        if status.trouble.is_none() {
            for key in keys {
                if let Some(last) = quota.recorded.used.get(key) {
                    status.used.entry(Arc::clone(key)).or_insert(last);
                }
            }
        }
        status
    }
}
