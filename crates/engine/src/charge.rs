//! What one pod takes from a quota.

use std::cmp::Ordering;
use std::fmt;

use smallvec::SmallVec;

use crate::quantity::{Format, NANOS_PER_UNIT, Quantity};
use crate::resource::Resource;

/// An amount in nano-units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(i128);

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(NANOS_PER_UNIT);
    /// The largest magnitude of an entry of a [`Charge`] and of a value of `spec.hard`: 2^104 nano-units,
    /// about 2·10^22 units. Amounts above are charged as this, so that the sum over 8 million pods cannot
    /// overflow; no quota can be larger, so such a pod never fits by accident.
    pub const LIMIT: Self = Self(1 << 104);

    /// An amount of exactly `nanos` nano-units.
    #[must_use]
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// The value in nano-units.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// The same amount as a quantity of the given format.
    #[must_use]
    pub const fn quantity(self, format: Format) -> Quantity {
        Quantity::from_nanos(self.0, format)
    }

    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The exact sum, if it fits.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The exact difference, if it fits.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// The sum, or the nearest amount that fits.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or the nearest amount that fits.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The amount brought inside ±[`Amount::LIMIT`].
    #[must_use]
    pub fn limited(self) -> Self {
        Self(self.0.clamp(-Self::LIMIT.0, Self::LIMIT.0))
    }
}

impl From<Quantity> for Amount {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.nanos())
    }
}

/// What a pod takes: amounts by resource, sorted by resource, each resource once. A resource that is
/// present with 0 differs from one that is absent, as in Kubernetes' usage maps.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Charge(Box<[(Resource, Amount)]>);

impl Charge {
    /// A charge of the given amounts. Repeated resources add up; amounts are kept within
    /// [`Amount::LIMIT`].
    #[must_use]
    pub fn from_pairs(pairs: impl IntoIterator<Item = (Resource, Amount)>) -> Self {
        let mut sorted: SmallVec<[(Resource, Amount); 8]> = pairs.into_iter().collect();
        sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut merged: Vec<(Resource, Amount)> = Vec::with_capacity(sorted.len());
        for (resource, amount) in sorted {
            match merged.last_mut() {
                Some((last, sum)) if *last == resource => *sum = sum.saturating_add(amount),
                _ => merged.push((resource, amount)),
            }
        }
        for (_, amount) in &mut merged {
            *amount = amount.limited();
        }
        Self(merged.into_boxed_slice())
    }

    #[must_use]
    pub fn get(&self, resource: &Resource) -> Option<Amount> {
        let found = self.0.binary_search_by(|(candidate, _)| candidate.cmp(resource)).ok()?;
        self.0.get(found).map(|(_, amount)| *amount)
    }

    /// All amounts in the order of their resources.
    pub fn iter(&self) -> std::slice::Iter<'_, (Resource, Amount)> {
        self.0.iter()
    }

    /// How many resources the charge has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is charged.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any amount is below 0.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.0.iter().any(|(_, amount)| *amount < Amount::ZERO)
    }

    /// Of each resource of either the larger amount.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let larger =
            |resource: &Resource, amount: Amount| other.get(resource).map_or(amount, |it| it.max(amount));
        let own = self.iter().map(|(resource, amount)| (resource.clone(), larger(resource, *amount)));
        let others = other.iter().filter(|(resource, _)| self.get(resource).is_none()).cloned();
        Self::from_pairs(own.chain(others))
    }

    /// Of each resource of `low` the amount that is charged here, but not less than that of `low`, and not more than that of
    /// `high` where that is more.
    #[must_use]
    pub fn clamp(&self, low: &Self, high: &Self) -> Self {
        let own = |resource| {
            let (own, high) = (self.get(resource)?, high.get(resource)?);
            Some(own.min(high))
        };
        Self::from_pairs(low.iter().map(|(resource, least)| {
            (resource.clone(), own(resource).map_or(*least, |amount| amount.max(*least)))
        }))
    }

    /// The smaller amount of each resource that both charge.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        let least = |(resource, amount): &(Resource, Amount)| {
            Some((resource.clone(), other.get(resource)?.min(*amount)))
        };
        Self::from_pairs(self.iter().filter_map(least))
    }

    /// How much is charged here above `other`; resources of which it is not more are left out.
    #[must_use]
    pub fn above(&self, other: &Self) -> Self {
        let more = |(resource, amount): &(Resource, Amount)| {
            let more = amount.saturating_sub(other.get(resource).unwrap_or(Amount::ZERO));
            (more > Amount::ZERO).then(|| (resource.clone(), more))
        };
        Self::from_pairs(self.iter().filter_map(more))
    }

    /// Whether every amount of `other` is present here and at least as large.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other
            .iter()
            .all(|(resource, amount)| self.get(resource).is_some_and(|own| own.cmp(amount) != Ordering::Less))
    }
}

impl<'c> IntoIterator for &'c Charge {
    type Item = &'c (Resource, Amount);
    type IntoIter = std::slice::Iter<'c, (Resource, Amount)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self
            .iter()
            .map(|(resource, amount)| (resource.key(), amount.quantity(Format::DecimalSi).to_string()));
        f.debug_map().entries(entries).finish()
    }
}
