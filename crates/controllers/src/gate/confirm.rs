//! Whether all quotas are seen that there were when a pod was charged.
//!
//! Pods and quotas come by different watches, so a quota that was created before a pod may be seen after it. A charge is
//! recorded after the pod was seen: when the watch of quotas shows a version as late as that record, it has shown every quota
//! that there was before. Only then is the charge taken for one of all the pod's quotas.

use std::collections::BTreeMap;

use sluice_engine::PodId;
use sluice_index::{QuotaWire, Version};

use super::config::Moment;
use super::state::State;

/// How far the watch of quotas has come, and what waits for it to come further.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    reached: Version,
    /// The latest version in the list that is being handed on.
    listed: Version,
    /// Decisions (pod and serial) by the version of the record that charges them.
    waiting: BTreeMap<Version, Vec<(PodId, u64)>>,
}

impl Confirmations {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn version(quota: &QuotaWire) -> Version {
    Version::parse(quota.metadata.resource_version.as_deref())
}

impl State {
    /// A quota was listed; others of the list may follow.
    pub fn see_listed_quota(&mut self, quota: &QuotaWire, now: Moment) {
        self.confirmations.listed = self.confirmations.listed.max(version(quota));
        self.see_quota(quota, now);
    }

    /// The watch has shown a quota, in the order of versions.
    pub fn see_watched_quota(&mut self, quota: &QuotaWire, now: Moment) {
        self.see_quota(quota, now);
        self.quotas_reached(version(quota));
    }

    /// The watch has shown that a quota is gone, in the order of versions.
    pub fn lose_watched_quota(&mut self, quota: &QuotaWire, now: Moment) {
        self.lose_quota(quota, now);
        self.quotas_reached(version(quota));
    }

    pub(super) fn quotas_are_listed(&mut self) {
        let listed = std::mem::take(&mut self.confirmations.listed);
        self.quotas_reached(listed);
    }

    fn quotas_reached(&mut self, version: Version) {
        self.confirmations.reached = self.confirmations.reached.max(version);
        while let Some(first) = self.confirmations.waiting.first_entry()
            && *first.key() <= self.confirmations.reached
        {
            let charged = first.remove();
            self.charge_is_recorded(charged);
        }
    }

    /// A quota has recorded these charges in this version of it.
    pub(super) fn charge_is_recorded_in(&mut self, quota: &QuotaWire, charged: Vec<(PodId, u64)>) {
        let version = version(quota);
        if version <= self.confirmations.reached {
            self.charge_is_recorded(charged);
        } else if !charged.is_empty() {
            self.confirmations.waiting.entry(version).or_default().extend(charged);
        }
    }
}
