//! Applies what is seen of VMs and of how they are counted: what each is charged.
//!
//! A VM's charge is found from the VM and its genuine launchers. Where it cannot be found, because the VM is not seen or
//! says something that cannot be counted, its launchers that run stay charged as they are, and others are held.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::vm::{Calculator, Launcher};
use sluice_engine::{Charge, PodId, Uid};
use sluice_index::{Gates, NamespaceId, PodRecord, Source, VmiRecord, VmiWire};

use super::State;
use crate::admission::{CHANGED, Judgement};
use crate::cluster::machines::Owner;
use crate::cluster::machines::{KubeVirt, Unknown};
use crate::config::Moment;
use crate::parts::repricing::Walk;
use crate::stage::{Stage, Stuck};

/// The work of an appraisal, in pods that find their stage anew: a VM has a pod or some more, and what it is charged has to
/// be found for it.
const APPRAISAL: usize = 4;

impl State {
    /// From now on VMs are counted so. No pod is decided on until all are.
    pub fn count_machines_by(&mut self, calculator: Calculator, now: Moment) {
        if self.cluster.machines.set_calculator(calculator) {
            self.end_all_growth();
            self.restate_quotas();
            self.repricing.walk_from(Walk::Claimed(None));
            self.go_on_appraising(now);
        }
    }

    /// From now on this KubeVirt runs; pods that another account has created are no launchers.
    pub fn set_kubevirt(&mut self, kubevirt: Option<KubeVirt>, now: Moment) {
        let former: Option<Box<str>> = self.cluster.machines.controller().map(Into::into);
        if self.cluster.machines.set_kubevirt(kubevirt) {
            self.restate_quotas();
            self.release_pods_of(former);
            let are_charged = self.cluster.machines.are_charged();
            self.repricing.walk_from(if are_charged { Walk::Claimed(None) } else { Walk::Platform(None) });
            self.go_on_appraising(now);
        }
    }

    /// What another account than KubeVirt's controller has created waits for no VM any more.
    fn release_pods_of(&mut self, former: Option<Box<str>>) {
        let Some(former) = former.filter(|former| self.cluster.machines.controller() != Some(&**former))
        else {
            return;
        };
        let is_stuck = |id: &PodId| matches!(self.stages.get(*id), Stage::Stuck(Stuck::Machine(_)));
        let mut stuck: BTreeMap<NamespaceId, Vec<PodId>> = BTreeMap::new();
        for id in self.cluster.pods.created_by(&former).filter(is_stuck) {
            if let Some(record) = self.cluster.pods.get(id) {
                stuck.entry(record.namespace).or_default().push(id);
            }
        }
        for (namespace, pods) in stuck {
            self.reclassify_later(namespace, pods);
        }
    }

    /// A list of VirtualMachineInstances begins.
    pub fn begin_machines(&mut self) {
        self.cluster.machines.begin_list();
    }

    /// The list of VirtualMachineInstances is complete.
    pub fn end_machines(&mut self, now: Moment) {
        for owner in self.cluster.machines.end_list() {
            self.end_growth(&owner, &CHANGED);
            self.appraise(&owner, now);
        }
    }

    /// A VirtualMachineInstance was added or modified.
    pub fn apply_machine(&mut self, wire: &VmiWire, now: Moment) {
        self.see_machine(wire, Source::Watch, now);
    }

    /// A VirtualMachineInstance is this, by the watch or an answer.
    pub(super) fn see_machine(&mut self, wire: &VmiWire, by: Source, now: Moment) {
        let record = VmiRecord::read(wire);
        let is_news = self.cluster.machines.see(&record, by);
        let owner = Owner { namespace: record.namespace, uid: record.uid };
        let asked = self.machine_growth.version(&owner);
        // What was asked for about an older version has been committed, and is what the VM is now to have, or never will
        // be. A request that was not answered yet cannot commit any more: the API server will ask again.
        let has_ended = asked.is_some_and(|asked| asked.is_older_than(record.version))
            && self.end_growth(&owner, &Judgement::Allowed);
        if is_news || has_ended {
            self.appraise(&owner, now);
        }
    }

    /// A VirtualMachineInstance was deleted.
    pub fn delete_machine(&mut self, wire: &VmiWire, now: Moment) {
        let record = VmiRecord::read(wire);
        self.forget_machine(&Owner { namespace: record.namespace, uid: record.uid }, now);
    }

    pub(super) fn forget_machine(&mut self, owner: &Owner, now: Moment) {
        self.end_growth(owner, &CHANGED);
        if self.cluster.machines.forget(owner) {
            self.appraise(owner, now);
        }
    }

    /// The next VMs are appraised.
    pub(super) fn go_on_appraising(&mut self, now: Moment) {
        let mut most = self.cluster.config.reclassified_pods;
        while most > 0 && !self.repricing.are_appraised() {
            let cost = match self.repricing.next_due() {
                Some(owner) => {
                    self.appraise(&owner, now);
                    APPRAISAL
                }
                None => {
                    self.walk_on();
                    1
                }
            };
            most = most.saturating_sub(cost);
        }
    }

    /// The walk takes one more step.
    fn walk_on(&mut self) {
        let next = match self.repricing.walk() {
            Walk::Claimed(after) => match self.cluster.pods.next_owner(after.as_ref()) {
                Some((namespace, uid)) => {
                    let name = self.cluster.namespaces.get(namespace).map(|known| Arc::clone(&known.name));
                    let owner = name.map(|namespace| Owner { namespace, uid: uid.clone() });
                    // The others have their turn with those that were seen.
                    let unseen = owner.filter(|owner| !self.cluster.machines.knows(owner));
                    self.repricing.appraise_later(unseen);
                    Walk::Claimed(Some((namespace, uid)))
                }
                None => Walk::Seen(None),
            },
            Walk::Seen(after) => match self.cluster.machines.next_seen(after.as_ref()).cloned() {
                Some(owner) => {
                    self.repricing.appraise_later([owner.clone()]);
                    Walk::Seen(Some(owner))
                }
                None => Walk::Platform(None),
            },
            Walk::Platform(after) => match self.cluster.pods.next_of_platform(after.as_ref()).cloned() {
                Some(key) => {
                    self.reexamine(vec![key.2]);
                    Walk::Platform(Some(key))
                }
                None => Walk::Ended,
            },
            Walk::Ended => Walk::Ended,
        };
        self.repricing.walk_to(next);
    }

    /// A pod has come or changed: what the VM is charged that it names may be something else.
    pub(super) fn appraise_owner_of(&mut self, id: PodId) {
        let owner = self.cluster.pods.get(id).and_then(|record| self.cluster.owner_that_depends_on(record));
        self.repricing.appraise_later(owner);
    }

    /// The same of a pod that goes.
    pub(super) fn appraise_later_without(&mut self, record: &PodRecord) {
        let owner = self.cluster.owner_that_depends_on(record);
        self.repricing.appraise_later(owner);
    }

    /// Finds what the VM is charged.
    pub(super) fn appraise(&mut self, owner: &Owner, now: Moment) {
        let launchers = self.launchers(owner);
        let charge = self.cluster.machines.charge(owner, launchers.iter().filter_map(as_launcher));
        let charge = charge.map(|charge| {
            let charge = self.with_answers(owner, charge?);
            Some(self.with_growth(owner, charge))
        });
        let is_unknown = charge.is_err();
        let is_running =
            |id: &PodId| matches!(self.stages.get(*id), Stage::Counted { .. } | Stage::Assumed { .. });
        match charge {
            Ok(charge) => self.recharge(&owner.namespace, owner.uid.clone(), charge, now),
            Err(_) if self.stages.owners().pods(owner).iter().any(is_running) => {}
            Err(_) => self.recharge(&owner.namespace, owner.uid.clone(), None, now),
        }
        let Some(namespace) = self.cluster.namespaces.id(&owner.namespace) else { return };
        for id in self.pods_of_machine(namespace, &owner.uid) {
            let is_stuck = matches!(self.stages.get(id), Stage::Stuck(Stuck::Machine(_)));
            let is_to_be = is_unknown && matches!(self.stages.get(id), Stage::Waiting(_));
            if is_stuck || is_to_be || !self.is_paid_by_its_payer(id) {
                self.reclassify(id, namespace, now);
            }
        }
    }

    /// What the VM is charged that takes this, with what it is to have by updates that were admitted.
    fn with_growth(&self, owner: &Owner, charge: Charge) -> Arc<Charge> {
        match self.machine_growth.wanted(owner) {
            Some(wanted) if wanted.covers(&charge) => Arc::clone(wanted),
            Some(wanted) => Arc::new(charge.max(wanted)),
            None => Arc::new(charge),
        }
    }

    /// Whether the pod claims on account of an owner if it should.
    fn is_paid_by_its_payer(&self, id: PodId) -> bool {
        let Some(record) = self.cluster.pods.get(id) else { return true };
        let is_owned = self.stages.owners().owner_of(id).is_some();
        match self.stages.get(id) {
            Stage::Waiting(_) | Stage::Counted { .. } | Stage::Assumed { .. } => {
                self.payer(id, record).owner.is_some() == is_owned
            }
            Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_) => true,
        }
    }

    /// All pods that are launchers of the VM, or that are charged as such: few, however many pods name it as their owner.
    pub(crate) fn pods_of_machine(&self, namespace: NamespaceId, machine: &Uid) -> Vec<PodId> {
        let Some(known) = self.cluster.namespaces.get(namespace) else { return Vec::new() };
        let owner = Owner { namespace: Arc::clone(&known.name), uid: machine.clone() };
        let mut pods = self.stages.owners().pods(&owner).to_vec();
        if let Some(controller) = self.cluster.machines.controller() {
            pods.extend(self.cluster.pods.of_owner(namespace, machine, controller));
            pods.extend(self.cluster.pods.oldest_unstamped(namespace, machine));
        }
        pods.sort_unstable();
        pods.dedup();
        pods
    }

    /// The launchers that the VM is charged by what they take: those that run, or if none does all.
    pub(super) fn launchers(&self, owner: &Owner) -> Vec<PodRecord> {
        if !self.cluster.machines.depend_on_pods() {
            return Vec::new();
        }
        let Some(namespace) = self.cluster.namespaces.id(&owner.namespace) else { return Vec::new() };
        let pods = self.pods_of_machine(namespace, &owner.uid);
        let records = pods.iter().filter_map(|id| self.cluster.pods.get(*id));
        let launchers = records.filter(|record| self.cluster.is_launcher(record) && !record.is_over());
        let (running, held): (Vec<_>, Vec<_>) =
            launchers.cloned().partition(|record| record.gates == Gates::None);
        if running.is_empty() { held } else { running }
    }
}

/// What the VM is charged by of one of its launchers.
pub(super) fn as_launcher(record: &PodRecord) -> Option<Launcher<'_>> {
    let compute = &record.ownership.as_ref()?.compute;
    Some(Launcher { whole: &record.charge, compute })
}

/// What is told of a pod whose VM cannot be counted.
pub(super) fn unknown_text(unknown: &Unknown) -> String {
    match unknown {
        Unknown::Unseen => {
            "held: its VirtualMachineInstance is not known; create the pod again if that is gone".to_owned()
        }
        Unknown::Unreadable(why) => {
            format!("held: its VirtualMachineInstance cannot be counted: {why}")
        }
    }
}
