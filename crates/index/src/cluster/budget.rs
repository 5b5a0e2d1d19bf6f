//! What may be granted to the migrations of a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_engine::headroom::{Amounts, Budget, Grant, sum_of_vmmrqs};
use sluice_engine::{Amount, Format, Resource};

use super::Cluster;
use crate::kinds::headroom_policy::{Mode, Policy, PolicyRecord};
use crate::kinds::resource_quota::ResourceQuotaRecord;
use crate::version::Version;

/// Amounts by resource.
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
    /// `HeadroomPolicy` that covers it, by name. A namespace that is opted out has none.
    #[must_use]
    pub fn budget(&self, namespace: &str) -> Budget {
        self.budget_before(namespace, None)
    }

    /// As [`Self::budget`], without what raises of other namespaces take that are younger than this version of a quota: of two
    /// that share a pool the later one gives way.
    #[must_use]
    pub fn budget_before(&self, namespace: &str, own: Option<Version>) -> Budget {
        if self.opted_out(namespace) {
            return Budget::default();
        }
        let mut grants: Vec<Grant> = self.vmmrq_grant(namespace).into_iter().collect();
        if let Some(record) = self.namespaces.get(namespace) {
            let covering = self.policies.all().iter().filter(|policy| policy.covers(record));
            grants.extend(covering.map(|policy| self.policy_grant(policy, namespace, own)));
        }
        Budget { grants }
    }

    /// Names of the objects that grant a namespace something: of its `VirtualMachineMigrationResourceQuota`s, and of the
    /// `HeadroomPolicy`s that cover it.
    #[must_use]
    pub fn grant_names(&self, namespace: &str) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let vmmrqs = self.vmmrqs.in_namespace(namespace).iter().map(|record| Arc::clone(&record.name));
        let record = self.namespaces.get(namespace);
        let covering =
            self.policies.all().iter().filter(|policy| record.is_some_and(|record| policy.covers(record)));
        (vmmrqs.collect(), covering.map(|policy| Arc::clone(&policy.name)).collect())
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
        Some(Grant::Amounts { source: source.into(), additional: sum.additional })
    }

    fn policy_grant(&self, policy: &PolicyRecord, namespace: &str, own: Option<Version>) -> Grant {
        let source: Arc<str> = format!("HeadroomPolicy {}", policy.name).into();
        let additional = policy.additional.clone();
        let grant = match policy.mode {
            Mode::Unlimited => Grant::Unlimited { source },
            Mode::PerNamespace => Grant::Amounts { source, additional },
            Mode::Pool => {
                let taken_elsewhere = amounts_of(&self.taken(policy, namespace, own));
                Grant::Pool { source, additional, taken_elsewhere }
            }
            Mode::Unknown => Grant::Amounts { source, additional: Amounts::new() },
        };
        let records = self.resource_quotas.records_in(namespace).iter();
        let quotas: Vec<Arc<str>> =
            records.filter(|record| policy.excludes(record)).map(|record| Arc::clone(&record.name)).collect();
        if quotas.is_empty() { grant } else { Grant::Except { quotas, grant: Box::new(grant) } }
    }

    /// The sum over all covered namespaces but one. Only those are looked at in which a migration uses more than a quota.
    fn taken(&self, policy: &Policy, but: &str, own: Option<Version>) -> Sums {
        let is_other = |namespace: &&Arc<str>| {
            ***namespace != *but && self.namespaces.get(namespace).is_some_and(|record| policy.covers(record))
        };
        let over = |record: &ResourceQuotaRecord| {
            let is_younger = own.is_some_and(|own| own.is_older_than(record.version));
            if is_younger { record.native().overdraft() } else { record.overdraft() }
        };
        let others = self.borrowing().into_iter().filter(is_other);
        let each: Vec<Sums> = others.map(|namespace| self.overdraft_in(namespace, policy, over)).collect();
        sum_of(&each)
    }

    /// Namespaces with a quota that was raised for a target, or with a target that was let in before this process looked.
    fn borrowing(&self) -> BTreeSet<&Arc<str>> {
        let lent = self.resource_quotas.lent().map(|key| &key.namespace);
        let underway = self.targets.migrations().filter_map(|uid| self.vmims.by_uid(uid));
        lent.chain(underway.filter(|migration| !migration.is_final()).map(|migration| &migration.namespace))
            .collect()
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
