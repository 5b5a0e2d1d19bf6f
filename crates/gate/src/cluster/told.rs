//! What the status of a quota tells besides what pods take: what its managed quota says, and what it does not enforce.

use std::sync::Arc;

use sluice_engine::managed::managed;
use sluice_engine::{CompiledQuota, ManagedStatus, Unenforced, limits_pods, unenforced, unenforced_in};
use sluice_index::{Key, QuotaRecord};

use super::Cluster;

impl Cluster {
    /// What a quota of a namespace does not enforce; of a cluster quota see [`Self::unenforced_in_cluster`].
    pub fn unenforced(&self, quota: &QuotaRecord, compiled: &CompiledQuota) -> Option<Unenforced> {
        let why = self.namespaces.ungated(quota.namespace()?)?;
        unenforced(compiled, why, self.namespaces.targeting().selector_text())
    }

    /// What a cluster quota does not enforce, with the names of namespaces: for administrators only.
    pub fn unenforced_in_cluster(&self, quota: &QuotaRecord, compiled: &CompiledQuota) -> Option<Unenforced> {
        if !limits_pods(compiled) {
            return None;
        }
        let selected = quota.namespaces().filter_map(|id| {
            let namespace = self.namespaces.get(id)?;
            Some((&*namespace.name, self.namespaces.ungated(id).is_some()))
        });
        unenforced_in(compiled, selected, self.namespaces.targeting().selector_text())
    }

    /// What the managed quota of a cluster quota says.
    pub fn managed_status_of_cluster(&self, quota: &QuotaRecord) -> Option<&ManagedStatus> {
        self.managed.get(&Key { namespace: "".into(), name: Arc::clone(&quota.name) })
    }

    /// While the managed quota says nothing of a key, as in the moments after a change of limits or of leaders, the last
    /// value stays; a 0 would be wrong.
    pub fn managed_status(&self, quota: &QuotaRecord, compiled: &CompiledQuota) -> ManagedStatus {
        let mut keys = managed(compiled).map(|entry| &entry.key).peekable();
        let Some(namespace) =
            quota.namespace().and_then(|id| self.namespaces.get(id)).filter(|_| keys.peek().is_some())
        else {
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
