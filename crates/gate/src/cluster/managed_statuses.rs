//! What the managed quotas say of the keys that the gate does not govern.

use std::collections::HashMap;

use sluice_engine::ManagedStatus;
use sluice_index::Key;

/// By the quota to which the managed one belongs.
///
/// Invariant: holds what was last told of each quota, and nothing of a quota of which nothing is known.
#[derive(Debug, Default)]
pub struct ManagedStatuses(HashMap<Key, ManagedStatus>);

impl ManagedStatuses {
    /// Replaces what was told before, and returns that.
    pub fn set(&mut self, quota: &Key, status: Option<ManagedStatus>) -> Option<ManagedStatus> {
        match status {
            Some(status) => self.0.insert(quota.clone(), status),
            None => self.0.remove(quota),
        }
    }

    /// What was told last.
    pub fn get(&self, quota: &Key) -> Option<&ManagedStatus> {
        self.0.get(quota)
    }
}
