//! How far a native quota may be raised.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Amounts;
use crate::charge::Amount;
use crate::quantity::Quantity;
use crate::resource::Resource;

/// All grants that concern a namespace. A raise is allowed if one grant alone allows every exceeded key of every
/// exceeded quota.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Budget {
    /// The grants, in no order.
    pub grants: Vec<Grant>,
}

/// What one object grants above `spec.hard`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Whatever migrations need.
    Unlimited {
        /// Who grants it, such as `HeadroomPolicy drain`.
        source: Arc<str>,
    },
    /// So much above each quota of the namespace.
    Amounts {
        /// Who grants it, such as `VirtualMachineMigrationResourceQuota a, b`.
        source: Arc<str>,
        /// How much, by quota key.
        additional: Amounts,
        /// Of each quota's own `spec.hard`, so many hundredths; where [`Self::Amounts::additional`] has an amount too, the
        /// larger one counts.
        percent: Option<u32>,
    },
    /// So much for several namespaces together.
    Pool {
        /// Who grants it.
        source: Arc<str>,
        /// How much for all of them, by quota key.
        additional: Amounts,
        /// What the other namespaces have taken of it, by quota key.
        taken_elsewhere: Amounts,
        /// How much of it one namespace may have, by quota key; a key that is not here has no such limit.
        per_namespace: Amounts,
    },
    /// What another grant says, but nothing for some quotas.
    Except {
        quotas: Vec<Arc<str>>,
        /// The other grant.
        grant: Box<Self>,
    },
}

/// What a grant says about one resource.
pub(super) struct Room {
    /// How much may be added to `spec.hard`; `None` is no limit.
    pub(super) amount: Option<Amount>,
    /// What the grant says before others have taken of it; `None` if it says nothing or has no limit.
    pub(super) additional: Option<Quantity>,
    /// How much of that others have taken.
    pub(super) taken: Quantity,
}

impl Grant {
    /// Who grants it.
    #[must_use]
    pub fn source(&self) -> &Arc<str> {
        match self {
            Self::Unlimited { source } | Self::Amounts { source, .. } | Self::Pool { source, .. } => source,
            Self::Except { grant, .. } => grant.source(),
        }
    }

    /// All that it says, before others have taken of it: amounts, amounts for one namespace, hundredths. Equal where two
    /// grants allow the same.
    #[must_use]
    pub const fn terms(&self) -> (Option<&Amounts>, Option<&Amounts>, Option<u32>) {
        match self {
            Self::Unlimited { .. } => (None, None, None),
            Self::Amounts { additional, percent, .. } => (Some(additional), None, *percent),
            Self::Pool { additional, per_namespace, .. } => (Some(additional), Some(per_namespace), None),
            Self::Except { grant, .. } => grant.terms(),
        }
    }

    /// What other namespaces have taken of it, by quota key; `None` for a grant that is not shared.
    #[must_use]
    pub const fn taken_elsewhere(&self) -> Option<&Amounts> {
        match self {
            Self::Unlimited { .. } | Self::Amounts { .. } => None,
            Self::Pool { taken_elsewhere, .. } => Some(taken_elsewhere),
            Self::Except { grant, .. } => grant.taken_elsewhere(),
        }
    }

    /// `spec`: the limit that the quota states for the resource.
    pub(super) fn room(&self, quota: &str, resource: &Resource, spec: Quantity) -> Room {
        let mut most = None;
        let (additional, taken) = match self {
            Self::Except { quotas, .. } if quotas.iter().any(|name| **name == *quota) => (None, None),
            Self::Except { grant, .. } => return grant.room(quota, resource, spec),
            Self::Unlimited { .. } => {
                return Room { amount: None, additional: None, taken: Quantity::ZERO };
            }
            Self::Amounts { additional, percent, .. } => {
                let part = percent.map(|percent| part_of(spec, percent));
                (largest(additional, resource).max(part), None)
            }
            Self::Pool { additional, taken_elsewhere, per_namespace, .. } => {
                most = largest(per_namespace, resource).map(Amount::from);
                (largest(additional, resource), largest(taken_elsewhere, resource))
            }
        };
        let additional = additional.filter(|amount| !amount.is_negative());
        let taken = taken.filter(|amount| !amount.is_negative()).unwrap_or(Quantity::ZERO);
        let left = additional.map_or(Amount::ZERO, Amount::from).saturating_sub(taken.into());
        let left = most.map_or(left, |most| left.min(most));
        Room { amount: Some(left.max(Amount::ZERO)), additional, taken }
    }
}

/// So many hundredths of an amount.
fn part_of(amount: Quantity, percent: u32) -> Quantity {
    Quantity::from_nanos(amount.nanos().saturating_mul(i128::from(percent)) / 100, amount.format())
}

/// The amount of `resource` under whichever of its names; of several the largest.
fn largest(amounts: &Amounts, resource: &Resource) -> Option<Quantity> {
    let named = amounts.iter().filter(|(key, _)| Resource::from_quota_key(key) == *resource);
    named.map(|(_, amount)| *amount).max()
}

/// A field of a grant that is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: spec.additionalMigrationResources[{key}]: {detail}")]
pub struct GrantError {
    /// Name of the object.
    pub source_name: Arc<str>,
    /// The key.
    pub key: Arc<str>,
    pub detail: String,
}

/// What several `VirtualMachineMigrationResourceQuota`s grant together.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VmmrqSum {
    /// Amounts by the shortest name of each resource.
    pub additional: Amounts,
    /// Fields that were left out.
    pub errors: Vec<GrantError>,
}

/// Adds up the grants of one namespace. Each is a name and its amounts. Two names of one number in the same grant
/// are one amount, the larger; amounts below 0 are left out.
pub fn sum_of_vmmrqs<'a>(grants: impl IntoIterator<Item = (&'a Arc<str>, &'a Amounts)>) -> VmmrqSum {
    let mut sum: BTreeMap<Resource, Quantity> = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, amounts) in grants {
        let mut own: BTreeMap<Resource, Quantity> = BTreeMap::new();
        for (key, amount) in amounts {
            if amount.is_negative() {
                let detail = format!("{amount} is ignored: it must not be below 0");
                errors.push(GrantError { source_name: Arc::clone(name), key: Arc::clone(key), detail });
                continue;
            }
            let largest = own.entry(Resource::from_quota_key(key)).or_insert(*amount);
            *largest = (*amount).max(*largest);
        }
        for (resource, amount) in own {
            let total = sum.entry(resource).or_insert(Quantity::ZERO);
            *total = total.checked_add(amount).unwrap_or(MOST);
        }
    }
    let additional = sum.into_iter().map(|(resource, amount)| (Arc::from(resource.key()), amount)).collect();
    VmmrqSum { additional, errors }
}

/// A sum that does not fit is as good as no limit.
const MOST: Quantity = Quantity::from_nanos(i128::MAX, crate::quantity::Format::DecimalSi);
