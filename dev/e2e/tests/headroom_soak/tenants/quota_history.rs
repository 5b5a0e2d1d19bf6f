//! Every version of a namespace's quotas, by watch.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuota;
use sluice_e2e::history::{History, Seen};
use sluice_e2e::tenant::{Tenant, amount, hard, spec_hard, used};
use sluice_engine::headroom::MARK;
use sluice_engine::{Amount, Quantity};

/// Watches the quotas of a namespace.
pub struct QuotaHistory(History<ResourceQuota>);

/// All versions until [`QuotaHistory::end`].
pub struct SeenQuotas(Seen<ResourceQuota>);

/// An amount from its text.
pub fn exact(text: &str) -> Amount {
    Amount::from(Quantity::parse(text).unwrap())
}

impl QuotaHistory {
    /// Begins with the quotas as they are now.
    pub async fn of(tenant: &Tenant<'_>) -> Self {
        Self(History::of(tenant.quotas.clone()).await)
    }

    /// Everything up to now.
    pub async fn end(self) -> SeenQuotas {
        SeenQuotas(self.0.end().await)
    }
}

impl SeenQuotas {
    /// How often the quota was marked and raised.
    pub fn raises(&self, quota: &str) -> usize {
        self.0.successions(quota).filter(|(before, after)| !is_raised(before) && is_raised(after)).count()
    }

    /// No version enforces less than this.
    pub fn assert_never_below(&self, quota: &str, floor: &BTreeMap<String, String>) {
        for version in self.0.versions(quota) {
            let enforced = hard(version);
            for (key, least) in floor.iter().filter(|_| !enforced.is_empty()) {
                assert!(amount(&enforced, key) >= exact(least), "{key} below {least}: {version:#?}");
            }
        }
    }

    /// The spec was not written.
    pub fn assert_spec_untouched(&self, quota: &str) {
        let mut versions = self.0.versions(quota);
        let first = versions.next().unwrap();
        for version in versions {
            assert_eq!(version.spec, first.spec);
            assert_eq!(version.metadata.generation, first.metadata.generation);
        }
    }

    /// What `spec.hard` has said of a key, in this order.
    pub fn limits(&self, quota: &str, key: &str) -> Vec<String> {
        let mut limits: Vec<String> =
            self.0.versions(quota).map(|version| spec_hard(version)[key].0.clone()).collect();
        limits.dedup();
        limits
    }

    /// The most that any version counts as used.
    pub fn most_used(&self, quota: &str, key: &str) -> Amount {
        self.0
            .versions(quota)
            .map(used)
            .filter(|used| used.contains_key(key))
            .map(|used| amount(&used, key))
            .max()
            .unwrap_or_default()
    }

    /// By how much usage grew, each time that it did, while the quota was raised.
    pub fn growths_while_raised(&self, quota: &str, key: &str) -> Vec<Amount> {
        let both_raised =
            self.0.successions(quota).filter(|(before, after)| is_raised(before) && is_raised(after));
        both_raised
            .map(|(before, after)| amount(&used(after), key).saturating_sub(amount(&used(before), key)))
            .filter(|grown| *grown > Amount::default())
            .collect()
    }
}

fn is_raised(quota: &ResourceQuota) -> bool {
    hard(quota).contains_key(MARK)
}
