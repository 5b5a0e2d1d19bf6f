//! Which pods of a namespace run a virtual machine, which are of migrations, and which are neither: what is above a quota has to be
//! explained by them ([`Account`]).

use std::collections::HashMap;
use std::sync::Arc;

use sluice_engine::headroom::{Account, AccountedPod, Source, Stake};
use sluice_engine::vm::memory_overhead;
use sluice_engine::{Amount, Charge, Resource, Uid};

use super::Cluster;
use crate::kinds::pod::LauncherRecord;
use crate::kinds::vmi::VmiRecord;

/// A pod that is being deleted explains what it takes if its deletion is over within so many seconds. Whoever deletes a pod may
/// give it any time; a launcher has half of this.
const ENDS_WITHIN: i64 = 300;

/// The pods of one namespace, each with the machine that controls it.
struct Pods<'c> {
    cluster: &'c Cluster,
    /// By uid, those that quotas count.
    pods: HashMap<&'c Uid, &'c LauncherRecord>,
    machines: HashMap<&'c Uid, &'c VmiRecord>,
    controller: Option<String>,
    now: i64,
}

impl Cluster {
    /// The pods of a namespace as the quotas above their `spec.hard` are explained by them. `live`: all pods of the namespace, as they
    /// were just listed; without, those that the watch has shown. `now`: seconds since the epoch.
    #[must_use]
    pub fn account(&self, namespace: &str, live: Option<&[LauncherRecord]>, now: i64) -> Account {
        let pods = Pods::of(self, namespace, live, now);
        let mut explained = pods.explained();
        let account = pods.pods.values().map(|pod| {
            let (stake, since) = match explained.remove(&pod.uid) {
                Some((stake, since)) => (stake, since),
                None => (Stake::Stays, pod.created),
            };
            AccountedPod {
                name: Arc::clone(&pod.name),
                since,
                charge: pod.charge.clone(),
                facts: pod.facts.clone(),
                stake,
            }
        });
        Account { pods: account.collect(), is_complete: live.is_some() }
    }

    /// What the pod takes that runs a virtual machine, or with `attached` the one that attaches volumes to it: unfinished, not being
    /// deleted, controlled by the machine, and on the node that runs it (as `CurrentVMIPod` in KubeVirt's
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
        let current = pods.current(machine);
        if !attached {
            return Source::least(current.iter().map(|pod| pod.source()));
        }
        let attached = current.iter().flat_map(|pod| pods.attached_to(pod));
        Source::least(attached.map(LauncherRecord::source))
    }

    /// By how much memory KubeVirt itself may make a launcher of this machine larger than another one.
    #[must_use]
    pub fn overhead(&self, machine: &VmiRecord) -> Amount {
        let default = sluice_engine::vm::KubeVirtFacts::default();
        let kubevirt = self.kubevirts.oldest();
        let kubevirt = kubevirt.map_or(&default, |record| &**record);
        let Ok(facts) = &machine.size else { return Amount::ZERO };
        let reported = facts.overhead.reported.unwrap_or_default();
        memory_overhead(facts, kubevirt).map_or(reported, |overhead| overhead.max(reported))
    }
}

impl<'c> Pods<'c> {
    fn of(cluster: &'c Cluster, namespace: &str, live: Option<&'c [LauncherRecord]>, now: i64) -> Self {
        let shown = cluster.launchers.in_namespace(namespace);
        let all: Vec<&LauncherRecord> = match live {
            Some(live) => live.iter().collect(),
            None => shown.iter().map(|record| &**record).collect(),
        };
        let machines = cluster.vmis.in_namespace(namespace).iter().map(|vmi| (&vmi.uid, &**vmi));
        Self {
            cluster,
            pods: all.into_iter().filter(|pod| pod.counts(now)).map(|pod| (&pod.uid, pod)).collect(),
            machines: machines.collect(),
            controller: cluster.kubevirt_controller(),
            now,
        }
    }

    /// Whether KubeVirt's controller may have created the pod.
    fn is_genuine(&self, pod: &LauncherRecord) -> bool {
        pod.created_by.as_deref().is_none_or(|name| self.controller.as_deref() == Some(name))
    }

    /// The pods that may be the one which runs the machine: one, unless a tenant has made another that looks like it.
    fn current(&self, machine: &VmiRecord) -> Vec<&'c LauncherRecord> {
        let Some(node) = &machine.node else { return Vec::new() };
        let is_it = |pod: &&&LauncherRecord| {
            pod.machine.as_ref() == Some(&machine.uid)
                && pod.ends_at.is_none()
                && pod.node.as_ref() == Some(node)
                && self.is_genuine(pod)
        };
        let mut found: Vec<&LauncherRecord> = self.pods.values().filter(is_it).copied().collect();
        if found.iter().any(|pod| pod.created_by.is_some()) {
            found.retain(|pod| pod.created_by.is_some());
        }
        found
    }

    fn attached_to(&self, launcher: &LauncherRecord) -> impl Iterator<Item = &'c LauncherRecord> {
        let uid = launcher.uid.clone();
        let is_attached = move |pod: &&LauncherRecord| pod.launcher.as_ref() == Some(&uid);
        self.pods.values().copied().filter(is_attached).collect::<Vec<_>>().into_iter()
    }

    /// Of each pod that explains something: what, and since when it, or its machine, is there.
    fn explained(&self) -> HashMap<Uid, (Stake, i64)> {
        let mut explained = HashMap::new();
        for machine in self.machines.values() {
            self.explain(machine, &mut explained);
        }
        for pod in self.pods.values() {
            if pod.ends_at.is_some_and(|at| at <= self.now.saturating_add(ENDS_WITHIN)) {
                explained.insert(pod.uid.clone(), (Stake::Passes(pod.charge.clone()), pod.created));
            }
        }
        explained
    }

    fn explain(&self, machine: &VmiRecord, explained: &mut HashMap<Uid, (Stake, i64)>) {
        let current = self.current(machine);
        let overhead = self.cluster.overhead(machine);
        // Where it cannot be told which of them is the launcher, none is as old as the machine.
        let since = |pod: &LauncherRecord| if current.len() == 1 { machine.created } else { pod.created };
        let mut most = Charge::default();
        for launcher in &current {
            let attached: Vec<_> = self.attached_to(launcher).collect();
            explained.insert(launcher.uid.clone(), (Stake::Runs { overhead }, since(launcher)));
            let all = attached.iter().chain(std::iter::once(launcher)).flat_map(|pod| pod.charge.iter());
            most = most.max(&Charge::from_pairs(all.cloned()));
            for pod in attached {
                explained.insert(pod.uid.clone(), (Stake::Runs { overhead: Amount::ZERO }, since(pod)));
            }
        }
        let more = [Resource::Memory, Resource::LimitsMemory].map(|resource| (resource, overhead));
        let grown = most.iter().cloned().chain(more.into_iter().filter(|(it, _)| most.get(it).is_some()));
        let mut left = Charge::from_pairs(grown);
        for pod in self.passing(machine, &current) {
            let (taken, rest) = split(&pod.charge, &left);
            left = rest;
            explained.insert(pod.uid.clone(), (Stake::Passes(taken), pod.created));
        }
    }

    /// The pods of the machine that are there because it moves, or has just moved; the oldest first.
    fn passing(&self, machine: &VmiRecord, current: &[&LauncherRecord]) -> Vec<&'c LauncherRecord> {
        let is_current = |pod: &LauncherRecord| current.iter().any(|other| other.uid == pod.uid);
        let moves = |pod: &LauncherRecord| {
            let migration = pod.migration.as_ref().and_then(|uid| self.cluster.vmims.by_uid(uid));
            let is_under_way = migration.is_some_and(|migration| {
                !migration.is_final()
                    && migration.namespace == machine.namespace
                    && *migration.machine == *machine.name
            });
            is_under_way || (pod.node.is_some() && pod.node == machine.former_node)
        };
        let of_machine = |pod: &&&LauncherRecord| {
            pod.machine.as_ref() == Some(&machine.uid)
                && self.is_genuine(pod)
                && !is_current(pod)
                && moves(pod)
        };
        let mut launchers: Vec<_> = self.pods.values().filter(of_machine).copied().collect();
        launchers.sort_by_key(|pod| (pod.created, &pod.name));
        let attached: Vec<_> = launchers.iter().flat_map(|pod| self.attached_to(pod)).collect();
        launchers.into_iter().chain(attached).collect()
    }
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
