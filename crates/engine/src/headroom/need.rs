//! What a migration's target pod takes.

use super::quota::NativeQuota;
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
    /// What the pod takes that it follows, and that ends when the migration does.
    pub source: Charge,
    /// What decides which scopes match that pod. A quota whose scopes leave it out does not count it: nothing goes
    /// there, and the machine grows there by all that the new pod takes.
    pub source_facts: ScopeFacts,
    /// Further pods that it follows, and of each what it takes beyond what passes anyway ([`super::Stake::Passes`]). A quota
    /// whose scopes leave such a pod out does not count it, so nothing goes there.
    pub replaced: Vec<(ScopeFacts, Charge)>,
    /// What the virtual machine takes more from now on ([`super::growth`]) of quotas that count the pod which it follows. It
    /// has to fit `spec.hard`.
    pub growth: Charge,
}

impl Need {
    /// The need of a pod of which only its charge and its scopes are known: it follows one with the same.
    #[must_use]
    pub fn new(charge: Charge, facts: ScopeFacts) -> Self {
        Self { charge, source_facts: facts.clone(), facts, ..Self::default() }
    }

    /// By how much more of `resource` the quota counts from now on.
    pub(super) fn grows(&self, quota: &NativeQuota, resource: &Resource) -> Option<Amount> {
        if self.follows_in(quota) { self.growth.get(resource) } else { self.of(resource) }
    }

    fn follows_in(&self, quota: &NativeQuota) -> bool {
        quota.scopes.matches(&self.source_facts)
    }

    /// How much of `resource` the pod adds; `None` if nothing, which quota admission does not compare.
    pub(super) fn of(&self, resource: &Resource) -> Option<Amount> {
        self.charge.get(resource).filter(|amount| !amount.is_zero())
    }

    /// How much of `resource` goes from the quota with the pods that it follows, beyond what passes.
    pub(super) fn goes(&self, quota: &NativeQuota, resource: &Resource) -> Amount {
        let counted = self.replaced.iter().filter(|(facts, _)| quota.scopes.matches(facts));
        let charges =
            counted.map(|(_, charge)| charge).chain(Some(&self.source).filter(|_| self.follows_in(quota)));
        charges.filter_map(|charge| charge.get(resource)).fold(Amount::ZERO, Amount::saturating_add)
    }
}

/// The need of a fresh copy of `pod`: whether this one has finished or is being deleted does not matter.
#[must_use]
pub fn need_of(pod: &PodInput<'_>, rules: ChargeRules) -> Need {
    let fresh =
        PodInput { phase: None, deletion_timestamp: None, deletion_grace_seconds: None, ..pod.clone() };
    Need {
        unspecified: constraints(MANDATORY, &fresh).err(),
        ..Need::new(pod_charge(&fresh, rules, 0), ScopeFacts::of(&fresh))
    }
}
