//! Which pods of a namespace run a virtual machine, which are of migrations, and which are neither: what is above a quota
//! has to be explained by them ([`Account`]).

use std::collections::HashMap;
use std::sync::Arc;

use sluice_api::names;
use sluice_engine::headroom::{
    Account, AccountedPod, Allowance, Need, Source, Stake, growth_to, limit_ratio,
};
use sluice_engine::vm::{Calculator, KubeVirtFacts, Launcher, vm_charge};
use sluice_engine::{Amount, Charge, Resource, ScopeFacts, Uid};

use super::Cluster;
use crate::kinds::pod::LauncherRecord;
use crate::kinds::vmi::VmiRecord;
use crate::kinds::vmim::VmimRecord;

/// So long after the end of a migration its other pod may still be there; seconds. A launcher that has lost its guest, or
/// never had one, ends by itself within that time (KubeVirt's `cmd/virt-launcher`, `qemu-timeout`).
const LINGERS: i64 = 300;

/// What KubeVirt gives a pod that attaches volumes where its configuration says nothing else (`hotplugContainerLimits` and
/// `hotplugContainerRequests` in KubeVirt's `pkg/virt-controller/services/renderresources.go`).
const ATTACHMENT: [(Resource, Amount); 6] = [
    (Resource::Pods, Amount::ONE),
    (Resource::CountPods, Amount::ONE),
    (Resource::Cpu, milli(10)),
    (Resource::LimitsCpu, milli(100)),
    (Resource::Memory, milli(2_000_000_000)),
    (Resource::LimitsMemory, milli(80_000_000_000)),
];

/// The pods of one namespace.
struct Pods<'c> {
    cluster: &'c Cluster,
    all: Vec<&'c LauncherRecord>,
    /// By the machine that controls them; those that quotas count, and those that have finished.
    of_machine: HashMap<&'c Uid, Vec<&'c LauncherRecord>>,
    finished: HashMap<&'c Uid, Vec<&'c LauncherRecord>>,
    /// Pods that attach volumes, by the launcher that controls them.
    attached: HashMap<&'c Uid, Vec<&'c LauncherRecord>>,
    controller: Option<String>,
    now: i64,
}

/// Of each pod that explains something: what, and since when it, or its machine, is there.
type Explained<'c> = HashMap<&'c Uid, (Stake, i64)>;

impl Cluster {
    /// The pods of a namespace as the quotas above their `spec.hard` are explained by them. `live`: all pods of the
    /// namespace, as they were just listed; without, those that the watch has shown. `now`: seconds since the epoch.
    #[must_use]
    pub fn account(&self, namespace: &str, live: Option<&[LauncherRecord]>, now: i64) -> Account {
        let pods = Pods::of(self, namespace, live, now);
        let mut explained = pods.explained(namespace);
        let account = pods.all.iter().map(|pod| {
            // Any other pod is as old as its size.
            let of_others = || (Stake::Stays, pod.resized_at.map_or(pod.created, |at| at.max(pod.created)));
            let (stake, since) = explained.remove(&pod.uid).unwrap_or_else(of_others);
            AccountedPod {
                name: Arc::clone(&pod.name),
                since,
                charge: if pod.counts(now) { pod.source.charge.clone() } else { finished_charge() },
                facts: pod.source.facts.clone(),
                stake,
            }
        });
        Account { pods: account.collect(), is_complete: live.is_some() }
    }

    /// What the pod takes that runs a virtual machine, or with `attached` the one that attaches volumes to it: unfinished,
    /// not being deleted, controlled by the machine, and on the node that runs it (as `CurrentVMIPod` in KubeVirt's
    /// `pkg/controller/controller.go`). `live` as for [`Self::account`].
    #[must_use]
    pub fn source(
        &self,
        machine: &VmiRecord,
        live: Option<&[LauncherRecord]>,
        attached: bool,
        now: i64,
    ) -> Option<Source> {
        let pods = Pods::of(self, &machine.namespace, live, now);
        let current = pods.current(machine).into_iter().filter(|pod| pod.ends_at.is_none());
        if !attached {
            return Source::least(current.map(|pod| pod.source.clone()));
        }
        let attached = current.flat_map(|pod| pods.attached_to(pod));
        Source::least(attached.map(|pod| pod.source.clone()))
    }

    /// What the next launcher of this machine will take, by the size that the machine is to have; `None` where that is not
    /// known, as of a machine that does not run. `now` as for [`Self::account`].
    #[must_use]
    pub fn next_need(&self, machine: &VmiRecord, now: i64) -> Option<Need> {
        self.need_after(machine, machine, now)
    }

    /// The same where `before` becomes this machine: an interface that it gets takes memory beside it.
    #[must_use]
    pub fn need_after(&self, before: &VmiRecord, machine: &VmiRecord, now: i64) -> Option<Need> {
        let (size, kubevirt) = (machine.size.as_ref().ok()?, self.kubevirts.oldest()?);
        let pods = Pods::of(self, &machine.namespace, None, now);
        let source = self.source(machine, None, false, now)?;
        // KubeVirt sets no deadline, whatever others have set on this one.
        let facts = ScopeFacts { terminating: false, ..source.facts.clone() };
        let launcher = Launcher { whole: &source.charge, compute: &source.compute };
        let charge = vm_charge(Calculator::VmiPodUsage, size, [launcher], Some(&**kubevirt)).ok()??;
        let allowed = self.allowance(machine);
        let is_plugged = allowed.interfaces > self.allowance(before).interfaces;
        let charge = if is_plugged { charge.max(&source.with_interfaces(allowed)) } else { charge };
        let growth = growth_to(&charge, &source, allowed);
        let replaced = pods.beyond_passing(machine);
        let (source, source_facts) = (source.charge, source.facts);
        Some(Need { growth, source, source_facts, replaced, ..Need::new(charge, facts) })
    }

    /// Whether a migration of this machine has no target yet, or its target has no pod that attaches volumes to it where
    /// it takes one. Only pods that KubeVirt has created for this machine are either: a tenant may make others with the same
    /// label.
    #[must_use]
    pub fn lacks_target(&self, migration: &VmimRecord, machine: &VmiRecord) -> bool {
        let controller = self.kubevirt_controller();
        let pods = || {
            self.launchers.of_migration(&migration.uid).filter(|pod| {
                let creator = pod.created_by.as_deref();
                pod.namespace == migration.namespace
                    && creator.is_none_or(|name| controller.as_deref() == Some(name))
            })
        };
        let targets: Vec<&Uid> =
            pods().filter(|pod| pod.machine.as_ref() == Some(&machine.uid)).map(|pod| &pod.uid).collect();
        let attaches = |pod: &LauncherRecord| pod.launcher.as_ref().is_some_and(|it| targets.contains(&it));
        targets.is_empty() || machine.hot_plugs && !pods().any(|pod| attaches(pod))
    }

    /// What KubeVirt may do to this machine from one launcher to the next.
    #[must_use]
    pub fn allowance(&self, machine: &VmiRecord) -> Allowance {
        let (default, kubevirt) = (KubeVirtFacts::default(), self.kubevirts.oldest());
        let kubevirt = kubevirt.map_or(&default, |record| &**record);
        let Ok(facts) = &machine.size else { return Allowance::default() };
        let namespace = self.namespaces.get(&machine.namespace);
        let label = namespace.and_then(|namespace| namespace.labels.get(names::LIMIT_RATIO_LABEL));
        Allowance::of(facts, kubevirt, limit_ratio(label))
    }
}

impl<'c> Pods<'c> {
    fn of(cluster: &'c Cluster, namespace: &str, live: Option<&'c [LauncherRecord]>, now: i64) -> Self {
        let shown = cluster.launchers.in_namespace(namespace);
        let all: Vec<&LauncherRecord> = match live {
            Some(live) => live.iter().collect(),
            None => shown.iter().map(|record| &**record).collect(),
        };
        let controller = cluster.kubevirt_controller();
        let is_genuine = |pod: &&LauncherRecord| {
            pod.created_by.as_deref().is_none_or(|name| controller.as_deref() == Some(name))
        };
        let [mut of_machine, mut finished, mut attached] = [const { Vec::new() }; 3].map(HashMap::from_iter);
        let put = |map: &mut HashMap<&'c Uid, Vec<&'c LauncherRecord>>, owner, pod| {
            map.entry(owner).or_default().push(pod);
        };
        for pod in all.iter().copied().filter(is_genuine) {
            match (&pod.machine, &pod.launcher) {
                (Some(machine), _) if pod.counts(now) => put(&mut of_machine, machine, pod),
                (Some(machine), _) => put(&mut finished, machine, pod),
                (None, Some(launcher)) if pod.counts(now) => put(&mut attached, launcher, pod),
                _ => {}
            }
        }
        Self { cluster, all, of_machine, finished, attached, controller, now }
    }

    /// The pods that may be the one which runs the machine: one, unless a tenant has made another that looks like it.
    /// The oldest first.
    fn current(&self, machine: &VmiRecord) -> Vec<&'c LauncherRecord> {
        let Some(node) = &machine.node else { return Vec::new() };
        let mut found = self.launchers_of(machine);
        found.retain(|pod| pod.node.as_ref() == Some(node));
        if found.iter().any(|pod| pod.created_by.is_some() && self.controller.is_some()) {
            found.retain(|pod| pod.created_by.is_some());
        }
        found
    }

    /// Those that the machine controls, the oldest first.
    fn launchers_of(&self, machine: &VmiRecord) -> Vec<&'c LauncherRecord> {
        let mut launchers = self.of_machine.get(&machine.uid).cloned().unwrap_or_default();
        launchers.sort_by_key(|pod| (pod.created, &pod.name));
        launchers
    }

    fn attached_to(&self, launcher: &LauncherRecord) -> Vec<&'c LauncherRecord> {
        self.attached.get(&launcher.uid).cloned().unwrap_or_default()
    }

    fn explained(&self, namespace: &str) -> Explained<'c> {
        let mut explained = HashMap::new();
        for machine in self.cluster.vmis.in_namespace(namespace) {
            self.explain(machine, &mut explained);
        }
        for pod in self.all.iter().filter(|pod| pod.counts(self.now)) {
            if pod.ends_at.is_some_and(|at| at <= self.now.saturating_add(LINGERS)) {
                explained.insert(&pod.uid, (Stake::Passes(pod.source.charge.clone()), pod.created));
            }
        }
        explained
    }

    fn explain(&self, machine: &VmiRecord, explained: &mut Explained<'c>) {
        let current = self.current(machine);
        // Where it cannot be told which of them is the launcher, one explains an overhead,
        // and none is as old as the machine.
        let Some(launcher) = current.first() else {
            return self.explain_passing(machine, &[], [Charge::default(), Charge::default()], explained);
        };
        let since = |pod: &LauncherRecord| if current.len() == 1 { machine.created } else { pod.created };
        let own = launcher.source.own_doing(self.cluster.allowance(machine));
        let attached = self.attached_to(launcher);
        let most = sum([&launcher.source.charge, &own]);
        let most_attached = allowed_to_attach(&attached);
        explained.insert(&launcher.uid, (Stake::Runs(own), since(launcher)));
        for pod in attached {
            let is_kubevirts = pod.created_by.is_some() || attachment().covers(&pod.source.charge);
            let since = if is_kubevirts { since(pod) } else { pod.created };
            explained.insert(&pod.uid, (Stake::Runs(Charge::default()), since));
        }
        self.explain_passing(machine, &current, [most, most_attached], explained);
    }

    /// The pods of the machine that are there because it moves, has just moved, or has just failed to: together they explain
    /// at most one more pod of its size, and what attaches its volumes once more.
    fn explain_passing(
        &self,
        machine: &VmiRecord,
        current: &[&LauncherRecord],
        most: [Charge; 2],
        explained: &mut Explained<'c>,
    ) {
        let others = self.launchers_of(machine).into_iter();
        let others = others.filter(|pod| current.iter().all(|other| other.uid != pod.uid));
        let passing: Vec<_> = others.filter(|pod| self.passes(machine, pod)).collect();
        let attached = passing.iter().flat_map(|pod| self.attached_to(pod)).collect::<Vec<_>>();
        for (pods, mut left) in [passing, attached].into_iter().zip(most) {
            for pod in pods {
                let (taken, rest) = split(&pod.source.charge, &left);
                left = rest;
                explained.insert(&pod.uid, (Stake::Passes(taken), pod.created));
            }
        }
        // A finished pod is an object still: one of each machine passes for a while.
        let finished = self.finished.get(&machine.uid).into_iter().flatten();
        if let Some(pod) = finished.filter(|pod| self.passes(machine, pod)).max_by_key(|pod| pod.created) {
            explained.insert(&pod.uid, (Stake::Passes(finished_charge()), pod.created));
        }
    }

    /// What pods of the machine's migration take beyond what passes, as a target does that has a new size already. The
    /// next launcher replaces them too, so that size is not counted beside its own.
    fn beyond_passing(&self, machine: &VmiRecord) -> Vec<(ScopeFacts, Charge)> {
        let explained = self.explained(&machine.namespace);
        let beyond = |pod: &LauncherRecord| match explained.get(&pod.uid)? {
            (Stake::Passes(part), _) => Some((pod.source.facts.clone(), pod.source.charge.above(part))),
            (Stake::Runs(_) | Stake::Stays, _) => None,
        };
        self.launchers_of(machine).into_iter().filter_map(beyond).collect()
    }

    fn passes(&self, machine: &VmiRecord, pod: &LauncherRecord) -> bool {
        let migration = pod.migration.as_ref().and_then(|uid| self.cluster.vmims.by_uid(uid));
        let is_under_way = migration.is_some_and(|migration| {
            !migration.is_final()
                && migration.namespace == machine.namespace
                && *migration.machine == *machine.name
        });
        let lingers = machine.last_migration.as_ref().is_some_and(|last| {
            let is_target = pod.migration.as_ref() == Some(&last.uid);
            // KubeVirt writes the new node before it says that the migration has completed.
            let is_source = !last.failed && pod.node.is_some() && pod.node == last.source_node;
            // Of a migration that was removed while it was under way, KubeVirt never writes an end.
            let is_recent = last.ended.map_or_else(
                || self.cluster.vmims.by_uid(&last.uid).is_some_and(|known| !known.is_final()),
                |ended| self.now <= ended.saturating_add(LINGERS),
            );
            (is_target || is_source) && is_recent
        });
        is_under_way || lingers || pod.ends_at.is_some()
    }
}

const fn milli(amount: i128) -> Amount {
    Amount::from_nanos(amount * 1_000_000)
}

fn attachment() -> Charge {
    Charge::from_pairs(ATTACHMENT)
}

/// What a pod takes that has finished.
fn finished_charge() -> Charge {
    Charge::from_pairs([(Resource::CountPods, Amount::ONE)])
}

fn sum<'a>(charges: impl IntoIterator<Item = &'a Charge>) -> Charge {
    Charge::from_pairs(charges.into_iter().flat_map(Charge::iter).cloned())
}

/// What the pods that attach volumes to a target may take: what those of its source do. Of pods without a stamp, which a
/// tenant may have made, no more than KubeVirt gives one.
fn allowed_to_attach(attached: &[&LauncherRecord]) -> Charge {
    let of = |is_stamped: bool| {
        let pods = attached.iter().filter(move |pod| pod.created_by.is_some() == is_stamped);
        sum(pods.map(|pod| &pod.source.charge))
    };
    sum([&of(true), &of(false).min(&attachment())])
}

/// Of each resource what is there, up to `left`; and what is left then.
fn split(charge: &Charge, left: &Charge) -> (Charge, Charge) {
    let part = |(resource, amount): &(Resource, Amount)| {
        (resource.clone(), left.get(resource).unwrap_or(Amount::ZERO).min(*amount))
    };
    let taken = Charge::from_pairs(charge.iter().map(part));
    let rest = left.iter().map(|(resource, amount)| {
        (resource.clone(), amount.saturating_sub(taken.get(resource).unwrap_or(Amount::ZERO)))
    });
    let rest = Charge::from_pairs(rest);
    (taken, rest)
}
