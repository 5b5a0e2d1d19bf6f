//! What was last recorded of a quota: in the status of an `ApplicationAwareResourceQuota`, in the charge of a cluster quota.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sluice_api::names;
use sluice_engine::Quantity;
use sluice_engine::vm::Calculator;

use super::shared_specs::{Keys, SharedSpecs};
use crate::kinds::arq::{QuotaConditionWire, QuotaStatusWire};
use crate::quantity::ResourceTexts;

/// What a quota's status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// `status.hard`.
    pub hard: Quantities,
    /// `status.used`, as `hard`.
    pub used: Quantities,
    /// `status.requests` and `status.limits`, which are for people.
    pub printed: Printed,
    /// `status.held`, for people.
    pub held: Option<i64>,
    /// `status.heldSince`, in seconds since the epoch.
    pub held_since: Option<i64>,
    /// What the condition about pods that wait says.
    pub pods_held: Option<Box<Told>>,
    /// `status.charges`: grows with each charge, so that a charge that leaves the sums as they were (one pod
    /// for another that has ended) still makes another version.
    pub charges: i64,
    /// What the condition about uncounted keys says; `None` without one, the usual case.
    pub uncounted: Option<Box<Told>>,
    /// What the condition about VMs says.
    pub machines: Option<ToldOfMachines>,
    /// What the condition says that pods are not limited; `None` without one, the usual case.
    pub unenforced: Option<Box<Told>>,
    /// What the condition says that pods have no answer of evaluators; `None` without one, the usual case.
    pub unevaluated: Option<Box<Told>>,
}

/// The texts that `kubectl get` prints of a quota. They are only compared, so that a hash of them is enough: the texts of
/// 10,000 quotas would take megabytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Printed(Option<u64>);

impl Printed {
    /// These texts; both are empty where there are none.
    #[must_use]
    pub fn of(requests: &str, limits: &str) -> Self {
        if requests.is_empty() && limits.is_empty() {
            return Self(None);
        }
        let mut hasher = DefaultHasher::new();
        (requests, limits).hash(&mut hasher);
        Self(Some(hasher.finish()))
    }
}

/// What the condition about VMs says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldOfMachines {
    /// How they are counted; `None` if the condition is not as Sluice writes it.
    pub calculator: Option<Calculator>,
    /// Since when it has its status, in seconds since the epoch.
    pub since: i64,
}

impl ToldOfMachines {
    fn read(condition: &QuotaConditionWire) -> Option<Self> {
        if condition.kind != names::VIRTUAL_MACHINES {
            return None;
        }
        let calculator = Calculator::from_name(&condition.reason).filter(|calculator| {
            let status = if calculator.counts_machines() { "True" } else { "False" };
            condition.status == status && condition.message == calculator.explanation()
        });
        let since = condition.last_transition_time.as_ref().map(|time| time.0.as_second());
        Some(Self { calculator: calculator.filter(|_| since.is_some()), since: since.unwrap_or_default() })
    }

    /// Since when the condition has the status that it has with this calculator; `None` if it has another.
    #[must_use]
    pub fn since_as(self, calculator: Calculator) -> Option<i64> {
        let is_same = self.calculator?.counts_machines() == calculator.counts_machines();
        is_same.then_some(self.since)
    }
}

/// What a condition says that is there in one case only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub reason: String,
    pub message: String,
    /// Since when it is there, in seconds since the epoch.
    pub since: i64,
}

impl Told {
    /// The condition of this type, if it has this status.
    fn read(conditions: &[QuotaConditionWire], kind: &str, status: &str) -> Option<Box<Self>> {
        let condition = conditions.iter().find(|known| known.kind == kind && known.status == status)?;
        let since = condition.last_transition_time.as_ref()?.0.as_second();
        Some(Box::new(Self { reason: condition.reason.clone(), message: condition.message.clone(), since }))
    }
}

impl Recorded {
    pub(super) fn read(status: &QuotaStatusWire, shared: &mut SharedSpecs) -> Self {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        Self {
            hard: Quantities::read(&status.hard, shared),
            used: Quantities::read(&status.used, shared),
            printed: Printed::of(
                status.requests.as_deref().unwrap_or_default(),
                status.limits.as_deref().unwrap_or_default(),
            ),
            held: status.held,
            held_since: status.held_since.as_ref().map(|since| since.0.as_second()),
            pods_held: Told::read(conditions, names::PODS_HELD, "True"),
            charges: status.charges.unwrap_or(0),
            uncounted: Told::read(conditions, names::UNCOUNTED_KEYS, "True"),
            machines: conditions.iter().find_map(ToldOfMachines::read),
            unenforced: Told::read(conditions, names::ENFORCED, "False"),
            unevaluated: Told::read(conditions, names::EVALUATED, "False"),
        }
    }
}

/// Quantities by key, sorted; small, since every quota has two of them. An absent map and an empty one are the
/// same: the API does not tell them apart either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantities {
    keys: Keys,
    /// `None` where the text is not a quantity.
    amounts: Box<[Option<Quantity>]>,
}

impl Default for Quantities {
    fn default() -> Self {
        Self { keys: Keys::from([]), amounts: Box::default() }
    }
}

impl Quantities {
    fn read(texts: &ResourceTexts, shared: &mut SharedSpecs) -> Self {
        let mut list: Vec<_> =
            texts.iter().map(|(key, text)| (key.as_str(), Quantity::parse_json_text(&text.0).ok())).collect();
        list.sort_by_key(|(key, _)| *key);
        let (keys, amounts): (Vec<&str>, Vec<Option<Quantity>>) = list.into_iter().unzip();
        Self { keys: shared.keys(keys), amounts: amounts.into_boxed_slice() }
    }

    /// Keys and amounts; `None` where the text is not a quantity.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Option<Quantity>)> {
        self.keys.iter().map(|key| &**key).zip(self.amounts.iter().copied())
    }

    /// The amount of a key, if it is there and can be read.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Quantity> {
        let at = self.keys.binary_search_by(|other| (**other).cmp(key)).ok()?;
        self.amounts.get(at).copied().flatten()
    }

    /// Whether these are exactly the given amounts, as numbers.
    #[must_use]
    pub fn are(&self, wanted: &[(String, Quantity)]) -> bool {
        self.keys.len() == wanted.len()
            && wanted.iter().all(|(key, quantity)| self.get(key) == Some(*quantity))
    }
}
