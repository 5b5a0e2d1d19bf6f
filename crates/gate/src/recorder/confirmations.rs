//! Whether all quotas are seen that there were when a pod was charged.
//!
//! Pods and quotas come by different watches, so a quota that was created before a pod may be seen after it. A charge is
//! recorded after the pod was seen: when the watch of quotas shows a version as late as that record, it has shown every
//! quota that there was before. Only then is the charge taken for one of all the pod's quotas.

use std::collections::BTreeMap;

use sluice_index::Version;

use crate::orders::Decisions;

/// How far the watch of quotas has come, and what waits for it to come further.
///
/// Invariant: every recorded charge is returned exactly once, by [`Self::recorded`] if the watch has come to its record
/// already, else by [`Self::reach`] or [`Self::end_list`].
#[derive(Debug, Default)]
pub struct Confirmations {
    reached: Version,
    /// The latest version in the list that is being handed on.
    listed: Version,
    /// By the version of the record that charges them.
    waiting: BTreeMap<Version, Decisions>,
}

impl Confirmations {
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A quota was listed; others of the list may follow.
    pub fn list(&mut self, version: Version) {
        self.listed = self.listed.max(version);
    }

    /// The list is complete. Returns what is confirmed by that.
    pub fn end_list(&mut self) -> Decisions {
        let listed = std::mem::take(&mut self.listed);
        self.reach(listed)
    }

    /// The watch has come to this version. Returns what is confirmed by that.
    pub fn reach(&mut self, version: Version) -> Decisions {
        self.reached = self.reached.max(version);
        let mut confirmed = Vec::new();
        while let Some(first) = self.waiting.first_entry()
            && *first.key() <= self.reached
        {
            confirmed.append(&mut first.remove());
        }
        confirmed
    }

    /// A quota has recorded these charges in this version. Returns them if the watch has come so far already.
    pub fn recorded(&mut self, version: Version, charged: Decisions) -> Decisions {
        if version <= self.reached {
            return charged;
        }
        if !charged.is_empty() {
            self.waiting.entry(version).or_default().extend(charged);
        }
        Vec::new()
    }
}
