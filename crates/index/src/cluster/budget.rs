//! What may be granted to the migrations of a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_engine::headroom::{Amounts, Budget, Grant, sum_of_vmmrqs};
use sluice_engine::{Amount, Format, Resource};

use super::Cluster;
use crate::grants::GrantNames;
use crate::kinds::headroom_policy::{Mode, Policy, PolicyRecord};
use crate::kinds::resource_quota::ResourceQuotaRecord;

pub type Sums = BTreeMap<Resource, Amount>;

/// All of them together.
#[must_use]
pub fn sum_of<'s>(all: impl IntoIterator<Item = &'s Sums>) -> Sums {
    let mut total = Sums::new();
    for (resource, amount) in all.into_iter().flatten() {
        let sum = total.entry(resource.clone()).or_insert(Amount::ZERO);
        *sum = sum.saturating_add(*amount);
    }
    total
}

impl Cluster {
    /// All grants that concern a namespace: its `VirtualMachineMigrationResourceQuota`s together, and each
    /// `HeadroomPolicy` that covers it, by name. A namespace that is opted out has none. `now`: seconds since the epoch.
    #[must_use]
    pub fn budget(&self, namespace: &str, now: i64) -> Budget {
        self.budget_less(namespace, |policy| self.taken(policy, namespace, now))
    }

    /// As [`Self::budget`], without a look at what other namespaces have taken: for those that ask only what is stated.
    #[must_use]
    pub fn stated_budget(&self, namespace: &str) -> Budget {
        self.budget_less(namespace, |_| Sums::new())
    }

    fn budget_less(&self, namespace: &str, taken: impl Fn(&Policy) -> Sums) -> Budget {
        if self.opted_out(namespace) {
            return Budget::default();
        }
        let mut grants: Vec<Grant> = self.vmmrq_grant(namespace).into_iter().collect();
        let covering = self.policies_of(namespace);
        grants.extend(covering.map(|policy| self.policy_grant(policy, namespace, &taken)));
        Budget { grants }
    }

    /// Names of the objects that grant a namespace something: of its `VirtualMachineMigrationResourceQuota`s, and of the
    /// `HeadroomPolicy`s that cover it.
    #[must_use]
    pub fn grant_names(&self, namespace: &str) -> GrantNames {
        let vmmrqs = self.vmmrqs.in_namespace(namespace).iter().map(|record| Arc::clone(&record.name));
        let policies = self.policies_of(namespace).map(|policy| Arc::clone(&policy.name));
        GrantNames { vmmrqs: vmmrqs.collect(), policies: policies.collect() }
    }

    fn policies_of(&self, namespace: &str) -> impl Iterator<Item = &Arc<PolicyRecord>> {
        let record = self.namespaces.get(namespace);
        self.policies.all().iter().filter(move |policy| record.is_some_and(|record| policy.covers(record)))
    }

    fn vmmrq_grant(&self, namespace: &str) -> Option<Grant> {
        let records = self.vmmrqs.in_namespace(namespace);
        let live = || records.iter().filter(|record| !record.deleting);
        let names: Vec<&str> = live().map(|record| &*record.name).collect();
        if names.is_empty() {
            return None;
        }
        let sum = sum_of_vmmrqs(live().map(|record| (&record.name, &record.additional)));
        let source = format!("VirtualMachineMigrationResourceQuota {}", names.join(", "));
        Some(Grant::Amounts { source: source.into(), additional: sum.additional, percent: None })
    }

    fn policy_grant(&self, policy: &PolicyRecord, namespace: &str, taken: impl Fn(&Policy) -> Sums) -> Grant {
        let source: Arc<str> = format!("HeadroomPolicy {}", policy.name).into();
        let additional = policy.additional.clone();
        let grant = match policy.mode {
            Mode::Unlimited => Grant::Unlimited { source },
            Mode::PerNamespace => Grant::Amounts { source, additional, percent: policy.percent },
            Mode::Pool => {
                let taken_elsewhere = amounts_of(&taken(policy));
                let per_namespace = policy.per_namespace.clone();
                Grant::Pool { source, additional, taken_elsewhere, per_namespace }
            }
            Mode::Unknown => Grant::Amounts { source, additional: Amounts::new(), percent: None },
        };
        let records = self.resource_quotas.records_in(namespace).iter();
        let quotas: Vec<Arc<str>> =
            records.filter(|record| policy.excludes(record)).map(|record| Arc::clone(&record.name)).collect();
        if quotas.is_empty() { grant } else { Grant::Except { quotas, grant: Box::new(grant) } }
    }

    /// What all covered namespaces but one take above their quotas, by migrations and for good, but for what was there when
    /// a limit was lowered. Only those are looked at in which a quota is above its spec.
    fn taken(&self, policy: &Policy, but: &str, now: i64) -> Sums {
        let is_other = |namespace: &&Arc<str>| {
            ***namespace != *but && self.namespaces.get(namespace).is_some_and(|record| policy.covers(record))
        };
        let above: BTreeSet<&Arc<str>> = self.resource_quotas.above().map(|key| &key.namespace).collect();
        let each: Vec<Sums> = above
            .into_iter()
            .filter(is_other)
            .map(|namespace| {
                let account = self.account(namespace, None, now);
                let above = |record: &ResourceQuotaRecord| {
                    let quota = record.native();
                    // What is raised is taken up in a moment.
                    if quota.mark().is_some() {
                        return record.overdraft();
                    }
                    let each = quota.overdraft().into_iter().map(|(resource, amount)| {
                        let most = account.not_inherited(&quota, &resource);
                        (resource, amount.min(most))
                    });
                    each.filter(|(_, amount)| *amount > Amount::ZERO).collect()
                };
                self.overdraft_in(namespace, policy, above)
            })
            .collect();
        sum_of(&each)
    }

    /// Of each resource what the most overdrawn quota of a namespace has that the policy does not exclude.
    #[must_use]
    pub fn overdraft_in(
        &self,
        namespace: &str,
        policy: &Policy,
        overdraft: impl Fn(&ResourceQuotaRecord) -> Sums,
    ) -> Sums {
        let mut most = Sums::new();
        let records = self.resource_quotas.records_in(namespace).iter();
        for (resource, amount) in
            records.filter(|record| !policy.excludes(record)).flat_map(|it| overdraft(it))
        {
            let largest = most.entry(resource).or_insert(amount);
            *largest = amount.max(*largest);
        }
        most
    }
}

/// By the shortest name of each resource, bytes in powers of 1024.
#[must_use]
pub fn amounts_of(sums: &Sums) -> Amounts {
    let written = sums.iter().map(|(resource, amount)| {
        let key = resource.key();
        let bytes = ["memory", "storage", "hugepages-"].iter().any(|word| key.contains(word));
        let format = if bytes { Format::BinarySi } else { Format::DecimalSi };
        (Arc::from(key), amount.quantity(format))
    });
    written.collect()
}
