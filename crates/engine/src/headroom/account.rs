//! Why more of a quota is used than its `spec.hard` says: whatever is above it has to be explained by pods that exist.
//!
//! ```text
//!  used ≤ max(spec.hard, what is older than spec.hard)     nothing was let in beside the quota
//!         + pods of migrations, and pods that end           they go by themselves
//!         + overhead of the VMs that run                    KubeVirt's own, which may have grown
//! ```
//! Nothing is remembered: a leftover of a migration, or a pod that took the place of a target, explains nothing, so what
//! such pods take cannot add up. The sums are made where a quota is above its `spec.hard`, and nowhere else.

use std::cmp::Reverse;
use std::sync::Arc;

use super::need::Need;
use super::plan::Raise;
use super::quota::NativeQuota;
use super::refusal::{Grown, Refusal};
use crate::charge::{Amount, Charge};
use crate::resource::Resource;
use crate::scope::ScopeFacts;

/// So many pods are named that hold what is not explained.
const NAMED: usize = 3;

/// The pods of a namespace, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Account {
    /// In no order. Pods that have finished are left out.
    pub pods: Vec<AccountedPod>,
    /// Every pod of the namespace is there. Otherwise those of virtual machines are, as far as a watch has shown them.
    pub is_complete: bool,
}

/// A pod that counts against quotas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccountedPod {
    pub name: Arc<str>,
    /// Its creation, in seconds since the epoch; of a pod that runs a virtual machine that of the machine.
    pub since: i64,
    pub charge: Charge,
    /// What decides which scopes match.
    pub facts: ScopeFacts,
    /// What it explains.
    pub stake: Stake,
}

/// What a pod explains of the usage above a quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stake {
    /// The pod runs a virtual machine: KubeVirt itself may have made the pod larger, by so much at most.
    Runs(Charge),
    /// The pod belongs to a migration that is under way, or is about to end: so much of its charge is explained.
    Passes(Charge),
    /// Any other pod.
    Stays,
}

impl Account {
    /// What speaks against these raises: keys in which the virtual machine would take more than `spec.hard` for good, and
    /// keys of which more than `spec.hard` is used already, and not all of that is explained.
    #[must_use]
    pub fn objections(&self, need: &Need, raises: &[Raise], quotas: &[NativeQuota]) -> Vec<Refusal> {
        let mut objections = Vec::new();
        for raise in raises {
            let Some(quota) = quotas.iter().find(|quota| quota.uid == raise.uid) else { continue };
            let keys = raise.keys.iter().map(|raised| &raised.key);
            let name = || Arc::clone(&quota.name);
            let grown: Vec<Grown> = keys.clone().filter_map(|key| self.grown(need, quota, key)).collect();
            if !grown.is_empty() {
                objections.push(Refusal::Growth { quota: name(), grown });
            }
            let mut keys: Vec<Arc<str>> =
                keys.filter(|key| self.unexplained(quota, key) > Amount::ZERO).cloned().collect();
            keys.sort_unstable();
            if let Some(first) = keys.first() {
                let pods = self.suspects(quota, first);
                objections.push(Refusal::Unexplained { quota: name(), keys, pods });
            }
        }
        objections
    }

    /// The quotas that would not take what the machine grows by, whatever is raised for its target. A resource of which its
    /// pods take no more than before is left out.
    #[must_use]
    pub fn outgrown(&self, need: &Need, quotas: &[NativeQuota]) -> Vec<Refusal> {
        let about_it = quotas.iter().filter(|quota| !quota.opted_out && quota.scopes.matches(&need.facts));
        let each = about_it.filter_map(|quota| {
            let is_more = |key: &&Arc<str>| need.growth.get(&Resource::from_quota_key(key)).is_some();
            let grown: Vec<Grown> = quota
                .spec_hard
                .keys()
                .filter(is_more)
                .filter_map(|key| self.grown(need, quota, key))
                .collect();
            (!grown.is_empty()).then(|| Refusal::Growth { quota: Arc::clone(&quota.name), grown })
        });
        each.collect()
    }

    /// What the machine grows by, if it does not fit once its source and all other pods
    /// that come and go with migrations have ended.
    fn grown(&self, need: &Need, quota: &NativeQuota, key: &Arc<str>) -> Option<Grown> {
        let resource = Resource::from_quota_key(key);
        let by = need.grows(quota, &resource)?;
        let (hard, used) = (*quota.spec_hard.get(key)?, *quota.used.get(key)?);
        let goes = need.goes(quota, &resource);
        let staying =
            self.taken(quota, &resource, used.into()).saturating_sub(self.passing(quota, &resource));
        let need = need.charge.get(&resource).unwrap_or(Amount::ZERO);
        let after = staying.saturating_add(need).saturating_sub(goes);
        (after > Amount::from(hard)).then(|| Grown {
            key: Arc::clone(key),
            by: by.quantity(used.format()),
            after: after.quantity(used.format()),
            hard,
        })
    }

    /// What is used, as far as pods take it. A pod that is charged and not stored yet, or was refused after its charge, is
    /// none that holds something.
    fn taken(&self, quota: &NativeQuota, resource: &Resource, used: Amount) -> Amount {
        if !self.is_complete {
            return used;
        }
        let pods = self.pods.iter().filter(|pod| quota.scopes.matches(&pod.facts));
        used.min(pods.fold(Amount::ZERO, |sum, pod| sum.saturating_add(pod.amount(resource))))
    }

    /// How much of what is used above `spec.hard` nothing explains; 0 if all of it is explained.
    #[must_use]
    pub fn unexplained(&self, quota: &NativeQuota, key: &str) -> Amount {
        let (Some(spec), Some(used)) = (quota.spec_hard.get(key), quota.used.get(key)) else {
            return Amount::ZERO;
        };
        let (spec, used) = (Amount::from(*spec), Amount::from(*used));
        if used <= spec {
            return Amount::ZERO;
        }
        let resource = Resource::from_quota_key(key);
        let (mut old, mut explained) = (Amount::ZERO, Amount::ZERO);
        for pod in self.pods.iter().filter(|pod| quota.scopes.matches(&pod.facts)) {
            explained = explained.saturating_add(pod.explains(&resource));
            if pod.is_older(quota) {
                old = old.saturating_add(pod.amount(&resource));
            }
        }
        let used = self.taken(quota, &resource, used);
        used.saturating_sub(explained).saturating_sub(spec.max(old)).max(Amount::ZERO)
    }

    /// Whether pods take all that the quota says is used. Otherwise a pod was charged that is not stored yet, or that was
    /// refused after its charge.
    #[must_use]
    pub fn holds(&self, quota: &NativeQuota, key: &str) -> bool {
        let resource = Resource::from_quota_key(key);
        let pods = self.pods.iter().filter(|pod| quota.scopes.matches(&pod.facts));
        let all = pods.fold(Amount::ZERO, |sum, pod| sum.saturating_add(pod.amount(&resource)));
        quota.used.get(key).is_none_or(|used| all >= Amount::from(*used))
    }

    /// Of this resource, what pods of migrations and pods that end take together.
    #[must_use]
    pub fn passing(&self, quota: &NativeQuota, resource: &Resource) -> Amount {
        let pods = self.pods.iter().filter(|pod| quota.scopes.matches(&pod.facts));
        let each = pods.map(|pod| match &pod.stake {
            Stake::Passes(charge) => charge.get(resource).unwrap_or(Amount::ZERO),
            Stake::Runs(_) | Stake::Stays => Amount::ZERO,
        });
        each.fold(Amount::ZERO, Amount::saturating_add)
    }

    /// Of this resource, what may be above the quota for another reason than that its limit was lowered under pods that were
    /// there: what younger pods and pods of migrations take, and what KubeVirt adds to the older ones.
    #[must_use]
    pub fn not_inherited(&self, quota: &NativeQuota, resource: &Resource) -> Amount {
        let pods = self.pods.iter().filter(|pod| quota.scopes.matches(&pod.facts));
        let each =
            pods.map(|pod| if pod.is_older(quota) { pod.explains(resource) } else { pod.amount(resource) });
        each.fold(Amount::ZERO, Amount::saturating_add)
    }

    /// Names of the pods that most likely hold what is not explained: those that explain nothing before those that explain a
    /// part, and the youngest first.
    fn suspects(&self, quota: &NativeQuota, key: &str) -> Vec<Arc<str>> {
        let resource = Resource::from_quota_key(key);
        let holds = |pod: &&AccountedPod| {
            let unexplained = pod.amount(&resource).saturating_sub(pod.explains(&resource));
            quota.scopes.matches(&pod.facts) && pod.since > quota.spec_since && unexplained > Amount::ZERO
        };
        let mut pods: Vec<_> = self.pods.iter().filter(holds).collect();
        pods.sort_by_key(|pod| (pod.rank(), Reverse(pod.since), Arc::clone(&pod.name)));
        pods.into_iter().take(NAMED).map(|pod| Arc::clone(&pod.name)).collect()
    }
}

impl AccountedPod {
    fn amount(&self, resource: &Resource) -> Amount {
        self.charge.get(resource).unwrap_or(Amount::ZERO)
    }

    /// Whether the pod was there before the limit, and stays.
    const fn is_older(&self, quota: &NativeQuota) -> bool {
        self.since <= quota.spec_since && !matches!(self.stake, Stake::Passes(_))
    }

    fn explains(&self, resource: &Resource) -> Amount {
        match &self.stake {
            Stake::Runs(charge) | Stake::Passes(charge) => charge.get(resource).unwrap_or(Amount::ZERO),
            Stake::Stays => Amount::ZERO,
        }
    }

    const fn rank(&self) -> u8 {
        match self.stake {
            Stake::Stays => 0,
            Stake::Passes(_) => 1,
            Stake::Runs(_) => 2,
        }
    }
}
