//! Native quotas and needs in the API's texts.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::sync::Arc;

use sluice_engine::headroom::{Amounts, MARK, NativeQuota, Need, Raise};
use sluice_engine::{Amount, Charge, Quantity, Resource, ScopeFacts, Uid};

pub fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub fn amounts(texts: &[(&str, &str)]) -> Amounts {
    texts.iter().map(|(key, text)| (Arc::from(*key), quantity(text))).collect()
}

/// A quota whose status is in step with its spec.
pub fn quota(name: &str, hard: &[(&str, &str)], used: &[(&str, &str)]) -> NativeQuota {
    NativeQuota {
        spec_hard: amounts(hard),
        status_hard: amounts(hard),
        used: amounts(used),
        ..NativeQuota::new(name, Uid::parse(name))
    }
}

pub fn need(texts: &[(&str, &str)]) -> Need {
    let pairs = texts.iter().map(|(key, text)| (Resource::from_quota_key(key), quantity(text).into()));
    Need::new(Charge::from_pairs(pairs), ScopeFacts::default())
}

/// Texts of a map, as `key=amount`.
pub fn texts(amounts: &Amounts) -> Vec<String> {
    amounts.iter().map(|(key, amount)| format!("{key}={amount}")).collect()
}

/// Writes what a raise says.
pub fn raise(quotas: &mut [NativeQuota], raises: &[Raise]) {
    for raise in raises {
        let quota = quotas.iter_mut().find(|quota| quota.uid == raise.uid).expect("a quota that exists");
        quota.status_hard.extend(raise.keys.iter().map(|raised| (Arc::clone(&raised.key), raised.to)));
    }
}

/// Charges the pod, as quota admission does when it lets it in.
pub fn admit(quotas: &mut [NativeQuota], need: &Need) {
    for quota in quotas.iter_mut().filter(|quota| quota.governs(&need.facts)) {
        for key in quota.status_hard.keys() {
            let Some(amount) = need.charge.get(&Resource::from_quota_key(key)) else { continue };
            let used = quota.used.entry(Arc::clone(key)).or_insert(Quantity::ZERO);
            *used = Amount::from(*used).saturating_add(amount).quantity(used.format());
        }
    }
}

/// Ends all raises.
pub fn restore(quotas: &mut [NativeQuota]) {
    for quota in quotas {
        if let Some(restore) = sluice_engine::headroom::restore(quota) {
            quota.status_hard.extend(restore.keys);
            quota.status_hard.remove(MARK);
        }
        assert!(!quota.is_raised(), "{}", quota.name);
    }
}
