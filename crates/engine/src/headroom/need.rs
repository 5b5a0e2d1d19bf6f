//! What a migration's target pod takes.

use crate::charge::{Amount, Charge};
use crate::pod::{ChargeRules, MissingResources, PodInput, constraints, pod_charge};
use crate::resource::Resource;
use crate::scope::ScopeFacts;

/// Keys that, where a quota limits them, every container has to name an amount for.
const MANDATORY: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// What a pod takes from the quotas of its namespace when it is created.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Need {
    /// Amounts by resource.
    pub charge: Charge,
    /// What decides which scopes match.
    pub facts: ScopeFacts,
    /// Containers that do not name amounts which some quotas make mandatory.
    pub unspecified: Option<MissingResources>,
    /// Where the machine is about to become larger on purpose (hot-plug): what its present pod takes. What it takes more has
    /// to fit `spec.hard`.
    pub grows_from: Option<Charge>,
}

impl Need {
    /// The need of a pod of which only its charge and its scopes are known.
    #[must_use]
    pub const fn new(charge: Charge, facts: ScopeFacts) -> Self {
        Self { charge, facts, unspecified: None, grows_from: None }
    }

    /// The need of so many pods like this one together.
    #[must_use]
    pub fn times(&self, pods: usize) -> Self {
        let pods = i128::try_from(pods).unwrap_or(i128::MAX);
        let all = self.charge.iter().map(|(resource, amount)| {
            (resource.clone(), Amount::from_nanos(amount.nanos().saturating_mul(pods)))
        });
        Self { charge: Charge::from_pairs(all), ..self.clone() }
    }

    /// How much of `resource` the pod adds; `None` if nothing, which quota admission does not compare.
    pub(super) fn of(&self, resource: &Resource) -> Option<Amount> {
        self.charge.get(resource).filter(|amount| !amount.is_zero())
    }
}

/// The need of a fresh copy of `pod`: whether this one has finished or is being deleted does not matter.
#[must_use]
pub fn need_of(pod: &PodInput<'_>, rules: ChargeRules) -> Need {
    let fresh =
        PodInput { phase: None, deletion_timestamp: None, deletion_grace_seconds: None, ..pod.clone() };
    Need {
        charge: pod_charge(&fresh, rules, 0),
        facts: ScopeFacts::of(&fresh, rules),
        unspecified: constraints(MANDATORY, &fresh, rules).err(),
        grows_from: None,
    }
}
