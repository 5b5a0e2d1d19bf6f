//! The cluster as it is, and as it would be with the next pods of some VMs in it.
//!
//! A pod that is predicted is put into the index that the webhook decides from, with a migration that is under way, and its
//! charge into the quotas: what is left of pools, and what explains the usage above a quota, is then found by the same code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use sluice_engine::headroom::{NativeQuota, Need};
use sluice_engine::{Amount, Charge, ChargeRules, Resource, Uid};
use sluice_index::{
    Cluster, LauncherRecord, PodWire, QuantityText, ResourceQuotaRecord, ResourceQuotaWire, VmimWire,
    Watched as _,
};

use super::row::{NOT_KNOWN, NOT_MIGRATABLE, NOW, Row};
use crate::cli::headroom::Verdict;

/// A quota of Sluice's, for those of a namespace or of the cluster.
pub(super) type Own = Arc<NativeQuota>;

/// A VM of the node.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub namespace: String,
    pub name: String,
    /// KubeVirt says that it can be migrated, or does not say that it cannot.
    pub can_migrate: bool,
}

/// What of a drain is looked at.
#[derive(Default)]
pub(super) struct Observed {
    pub cluster: Cluster,
    /// ResourceQuotas that are known.
    pub quotas: Vec<ResourceQuotaWire>,
    /// All pods of the namespaces of the node's VMs.
    pub pods: Vec<PodWire>,
    /// Sluice's quotas by namespace, where they count each pod of a VM for itself. One of the cluster is there under each
    /// of its namespaces.
    pub own: BTreeMap<String, Vec<Own>>,
    /// Namespaces in which Sluice's quotas count VMs in place of their pods.
    pub counting_machines: BTreeSet<String>,
    /// By namespace, why Sluice raises no quota.
    pub unproven: BTreeMap<String, String>,
    pub machines: Vec<Machine>,
    /// Seconds since the epoch.
    pub now: i64,
}

/// What the other VMs of the node do meanwhile.
pub(super) enum Others {
    /// They have moved, and so have all that move now.
    Ended,
    /// Of these the next pods are there.
    Moving(Vec<usize>),
}

/// The next pod of a VM.
struct Next {
    need: Need,
    pod: PodWire,
    migration: VmimWire,
}

/// A cluster in which pods are predicted.
pub(super) struct Predicted {
    observed: Observed,
    /// By the number of the machine; those that do not move have none.
    next: BTreeMap<usize, Next>,
    /// How the pods of each namespace are: those that were read, and those that are predicted now.
    live: BTreeMap<String, Vec<LauncherRecord>>,
    there: BTreeSet<usize>,
    /// Rows of VMs that do not move, or move already.
    settled: Vec<Row>,
}

impl Predicted {
    pub(super) fn new(mut observed: Observed) -> Self {
        for quota in &mut observed.quotas {
            // Each later state replaces the one before.
            quota.metadata.resource_version = None;
            if ResourceQuotaRecord::read(quota).native().mark().is_some() {
                // The raise is over in a moment.
                quota.status.hard = quota.spec.hard.clone();
            }
            observed.cluster.resource_quotas.upsert(quota);
        }
        let (mut next, mut settled) = (BTreeMap::new(), Vec::new());
        for (number, machine) in observed.machines.iter().enumerate() {
            match outcome(&observed, machine) {
                Ok(found) => drop(next.insert(number, found)),
                Err(row) => settled.push(*row),
            }
        }
        let mut live = BTreeMap::<String, Vec<LauncherRecord>>::new();
        for pod in &observed.pods {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            live.entry(namespace).or_default().push(LauncherRecord::read(pod));
        }
        Self { observed, next, live, there: BTreeSet::new(), settled }
    }

    pub(super) fn moving(&self) -> Vec<usize> {
        self.next.keys().copied().collect()
    }

    pub(super) fn settled(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.settled)
    }

    pub(super) const fn cluster(&self) -> &Cluster {
        &self.observed.cluster
    }

    pub(super) fn name(&self, vm: usize) -> &str {
        self.observed.machines.get(vm).map_or("", |machine| &machine.name)
    }

    pub(super) fn namespace(&self, vm: usize) -> &str {
        self.observed.machines.get(vm).map_or("", |machine| &machine.namespace)
    }

    pub(super) fn counts_machines(&self, vm: usize) -> bool {
        self.observed.counting_machines.contains(self.namespace(vm))
    }

    pub(super) fn need(&self, vm: usize) -> Option<(&str, &Need)> {
        Some((self.namespace(vm), &self.next.get(&vm)?.need))
    }

    pub(super) fn verdict(&self, namespace: &str, need: &Need) -> Verdict {
        let live = self.live.get(namespace).map(Vec::as_slice);
        let unproven = self.observed.unproven.get(namespace).map(String::as_str);
        Verdict::of(&self.observed.cluster, (namespace, need), live, unproven, self.observed.now)
    }

    /// Sluice's quotas that count the pods of this VM, with what is predicted; `None`: there are none.
    pub(super) fn own(&self, vm: usize) -> Option<Vec<NativeQuota>> {
        let quotas = self.observed.own.get(self.namespace(vm))?;
        let with_others = |own: &Own| {
            let mut quota = NativeQuota::clone(own);
            for other in &self.there {
                let is_about = |namespace: &str| {
                    let of_it = self.observed.own.get(namespace);
                    of_it.is_some_and(|all| all.iter().any(|known| known.uid == own.uid))
                };
                let Some(next) = self.next.get(other).filter(|_| is_about(self.namespace(*other))) else {
                    continue;
                };
                if quota.scopes.matches(&next.need.facts) {
                    take(&mut quota, &pairs(&next.need.charge), true);
                }
            }
            quota
        };
        Some(quotas.iter().map(with_others).collect())
    }

    /// The cluster is like this from now on.
    pub(super) fn assume(&mut self, others: &Others) {
        let wanted: BTreeSet<usize> = match others {
            Others::Ended => BTreeSet::new(),
            Others::Moving(others) => others.iter().copied().collect(),
        };
        let (gone, new): (Vec<usize>, Vec<usize>) = (
            self.there.difference(&wanted).copied().collect(),
            wanted.difference(&self.there).copied().collect(),
        );
        for number in gone {
            self.put(number, false);
        }
        for number in new {
            self.put(number, true);
        }
        self.there = wanted;
        for wire in &self.observed.quotas {
            let changed = self.changed(wire, matches!(others, Others::Ended));
            self.observed.cluster.resource_quotas.upsert(&changed);
        }
    }

    fn put(&mut self, number: usize, is_there: bool) {
        let namespace = self.namespace(number).to_owned();
        let Some(next) = self.next.get(&number) else { return };
        let cluster = &mut self.observed.cluster;
        let live = self.live.entry(namespace).or_default();
        if is_there {
            cluster.vmims.upsert(&next.migration);
            cluster.launchers.upsert(&next.pod);
            live.push(LauncherRecord::read(&next.pod));
        } else {
            cluster.launchers.remove(&next.pod);
            cluster.vmims.remove(&next.migration);
            let gone = LauncherRecord::read(&next.pod).uid;
            live.retain(|pod| pod.uid != gone);
        }
    }

    /// A quota with what is used by the pods that are predicted, or without what passes.
    fn changed(&self, wire: &ResourceQuotaWire, is_over: bool) -> ResourceQuotaWire {
        let mut changed = wire.clone();
        let namespace = wire.metadata.namespace.as_deref().unwrap_or_default();
        let mut quota = ResourceQuotaRecord::read(wire).native();
        for number in &self.there {
            let Some(next) = self.next.get(number).filter(|_| self.namespace(*number) == namespace) else {
                continue;
            };
            if quota.scopes.matches(&next.need.facts) {
                take(&mut quota, &pairs(&next.need.charge), true);
            }
        }
        if is_over {
            let live = self.live.get(namespace).map(Vec::as_slice);
            let account = self.observed.cluster.account(namespace, live, self.observed.now);
            let resources: BTreeSet<_> = quota.used.keys().map(|key| Resource::from_quota_key(key)).collect();
            let passing: Vec<_> = resources
                .into_iter()
                .map(|resource| {
                    let amount = account.passing(&quota, &resource);
                    (resource, amount)
                })
                .collect();
            take(&mut quota, &passing, false);
            // A machine whose next pod is smaller leaves room behind.
            for (number, next) in &self.next {
                if self.namespace(*number) == namespace && quota.scopes.matches(&next.need.source_facts) {
                    take(&mut quota, &pairs(&next.need.source.above(&next.need.charge)), false);
                }
            }
        }
        for (key, text) in &mut changed.status.used {
            if let Some(used) = quota.used.get(&**key) {
                *text = QuantityText(used.to_string());
            }
        }
        changed
    }
}

/// More is used of these quotas by a pod.
fn take(quota: &mut NativeQuota, resources: &[(Resource, Amount)], is_more: bool) {
    for (key, used) in &mut quota.used {
        let resource = Resource::from_quota_key(key);
        for (_, amount) in resources.iter().filter(|(taken, _)| *taken == resource) {
            let now = Amount::from(*used);
            let now = if is_more { now.saturating_add(*amount) } else { now.saturating_sub(*amount) };
            *used = now.max(Amount::ZERO).quantity(used.format());
        }
    }
}

fn pairs(charge: &Charge) -> Vec<(Resource, Amount)> {
    charge.iter().cloned().collect()
}

/// The next pod of a machine that is about to move.
///
/// # Errors
/// What there is to say of one that does not, or moves already.
fn outcome(observed: &Observed, machine: &Machine) -> Result<Next, Box<Row>> {
    let Machine { namespace, name, can_migrate } = machine;
    let row = |result, reason, message: &str| {
        Box::new(Row {
            namespace: namespace.clone(),
            vm: name.clone(),
            native: "-",
            sluice: "-",
            headroom: "-".to_owned(),
            result,
            reason,
            message: message.to_owned(),
        })
    };
    if !can_migrate {
        return Err(row(NOT_MIGRATABLE, "NotMigratable", "LiveMigratable is False"));
    }
    let unknown = || row(NOT_KNOWN, "PendingEvaluation", "what its next pod takes is not known");
    let (cluster, now) = (&observed.cluster, observed.now);
    let record = cluster.vmis.get(namespace, name).ok_or_else(unknown)?;
    let moves = |migration: &sluice_index::VmimRecord| {
        *migration.machine == **name && !migration.is_final() && !cluster.lacks_target(migration, record)
    };
    if cluster.vmims.in_namespace(namespace).iter().any(|migration| moves(migration)) {
        return Err(row(NOW, "HeadroomAvailable", "a migration is under way"));
    }
    let mut need = cluster.next_need(record, now).ok_or_else(unknown)?;
    let mut owned = observed.pods.iter().filter(|pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.any(|owner| record.uid == Uid::parse(&owner.uid))
    });
    let source = owned.find(|pod| {
        let pod = LauncherRecord::read(pod);
        pod.machine.as_ref() == Some(&record.uid) && pod.node == record.node && pod.counts(now)
    });
    let source = source.ok_or_else(unknown)?;
    let rules = ChargeRules::for_minor(36);
    need.unspecified = sluice_index::need_of(source, rules).ok().and_then(|need| need.unspecified);
    // The pod that attaches volumes to the next launcher comes beside it.
    if let Some(attached) = cluster.source(record, None, true, now).filter(|_| record.hot_plugs) {
        let both = |a: &Charge, b: &Charge| Charge::from_pairs(a.iter().chain(b.iter()).cloned());
        need.charge = both(&need.charge, &attached.charge);
        need.source = both(&need.source, &attached.charge);
    }
    let uid = format!("drain-of-{}", record.uid);
    let migration = json!({
        "metadata": { "name": uid, "namespace": namespace, "uid": uid },
        "spec": { "vmiName": name },
        "status": { "phase": "Running" },
    });
    let migration = serde_json::from_value(migration).map_err(|_| unknown())?;
    let mut pod = source.clone();
    let metadata = &mut pod.metadata;
    (metadata.name, metadata.uid) = (Some(uid.clone()), Some(format!("target-{uid}")));
    metadata.resource_version = None;
    let label = sluice_api::names::MIGRATION_JOB_LABEL.to_owned();
    metadata.labels.get_or_insert_default().insert(label, uid);
    pod.spec.node_name = None;
    Ok(Next { need, pod, migration })
}
