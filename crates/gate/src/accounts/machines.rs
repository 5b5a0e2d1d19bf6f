//! Applies what is seen of VMs and of how they are counted: what each is charged.
//!
//! A VM's charge is found from the VM and its genuine launchers. Where it cannot be found, because the VM is not seen or
//! says something that cannot be counted, its launchers that run stay charged as they are, and others are held.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::vm::Launcher;
use sluice_engine::{Charge, PodId, Uid};
use sluice_index::{Gates, NamespaceId, PodRecord, Version};

use super::Accounts;
use crate::accounts::parts::owners::{Fall, Payer};
use crate::accounts::parts::repricing::Walk;
use crate::admission::{CHANGED, Judgement};
use crate::cluster::Cluster;
use crate::cluster::machines::{Owner, Unknown};
use crate::config::Moment;
use crate::stage::{Stage, Stuck};

/// The work of an appraisal, in pods that find their stage anew: a VM has a pod or some more, and what it is charged has to
/// be found for it.
const APPRAISAL: usize = 4;

impl Accounts {
    /// VMs are counted otherwise, or other pods are launchers: what all are charged is found anew from this place on.
    pub fn reprice_from(&mut self, cluster: &Cluster, place: Walk, now: Moment) {
        self.repricing.walk_from(place);
        self.go_on_appraising(cluster, now);
    }

    /// A VM was seen in this version. `is_news`: its size is another one.
    pub fn on_machine_seen(
        &mut self,
        cluster: &Cluster,
        owner: &Owner,
        version: Version,
        is_news: bool,
        now: Moment,
    ) {
        let asked = self.machine_growth.version(owner);
        // What was asked for about an older version has been committed, and is what the VM is now to have, or never will
        // be. A request that was not answered yet cannot commit any more: the API server will ask again.
        let has_ended = asked.is_some_and(|asked| asked.is_older_than(version))
            && self.end_growth(owner, &Judgement::Allowed);
        if is_news || has_ended {
            self.appraise(cluster, owner, now);
        }
    }

    /// A VM is gone, of which something was known or not.
    pub fn on_machine_gone(&mut self, cluster: &Cluster, owner: &Owner, was_known: bool, now: Moment) {
        self.end_growth(owner, &CHANGED);
        if was_known {
            self.appraise(cluster, owner, now);
        }
    }

    /// What another account than KubeVirt's controller has created waits for no VM any more.
    pub fn release_pods_of(&mut self, cluster: &Cluster, former: Option<Box<str>>) {
        let Some(former) = former.filter(|former| cluster.machines.controller() != Some(&**former)) else {
            return;
        };
        let is_stuck = |id: &PodId| matches!(self.stages.get(*id), Stage::Stuck(Stuck::Machine(_)));
        let mut stuck: BTreeMap<NamespaceId, Vec<PodId>> = BTreeMap::new();
        for id in cluster.pods.created_by(&former).filter(is_stuck) {
            if let Some(record) = cluster.pods.get(id) {
                stuck.entry(record.namespace).or_default().push(id);
            }
        }
        for (namespace, pods) in stuck {
            self.reclassify_later(cluster, namespace, pods);
        }
    }

    /// The next VMs are appraised.
    pub fn go_on_appraising(&mut self, cluster: &Cluster, now: Moment) {
        let mut most = cluster.config.reclassified_pods;
        while most > 0 && !self.repricing.are_appraised() {
            let cost = match self.repricing.next_due() {
                Some(owner) => {
                    self.appraise(cluster, &owner, now);
                    APPRAISAL
                }
                None => {
                    self.walk_on(cluster);
                    1
                }
            };
            most = most.saturating_sub(cost);
        }
    }

    /// The walk takes one more step.
    fn walk_on(&mut self, cluster: &Cluster) {
        let next = match self.repricing.walk() {
            Walk::Claimed(after) => match cluster.pods.next_owner(after.as_ref()) {
                Some((namespace, uid)) => {
                    let name = cluster.namespaces.get(namespace).map(|known| Arc::clone(&known.name));
                    let owner = name.map(|namespace| Owner { namespace, uid: uid.clone() });
                    // The others have their turn with those that were seen.
                    let unseen = owner.filter(|owner| !cluster.machines.knows(owner));
                    self.repricing.appraise_later(unseen);
                    Walk::Claimed(Some((namespace, uid)))
                }
                None => Walk::Seen(None),
            },
            Walk::Seen(after) => match cluster.machines.next_seen(after.as_ref()).cloned() {
                Some(owner) => {
                    self.repricing.appraise_later([owner.clone()]);
                    Walk::Seen(Some(owner))
                }
                None => Walk::Platform(None),
            },
            Walk::Platform(after) => match cluster.pods.next_of_platform(after.as_ref()).cloned() {
                Some(key) => {
                    self.reexamine(cluster, vec![key.2]);
                    Walk::Platform(Some(key))
                }
                None => Walk::Ended,
            },
            Walk::Ended => Walk::Ended,
        };
        self.repricing.walk_to(next);
    }

    /// A pod has come or changed: what the VM is charged that it names may be something else.
    pub(super) fn appraise_owner_of(&mut self, cluster: &Cluster, id: PodId) {
        let owner = cluster.pods.get(id).and_then(|record| cluster.owner_that_depends_on(record));
        self.repricing.appraise_later(owner);
    }

    /// The same of a pod that goes.
    pub(super) fn appraise_later_without(&mut self, cluster: &Cluster, record: &PodRecord) {
        let owner = cluster.owner_that_depends_on(record);
        self.repricing.appraise_later(owner);
    }

    /// Finds what the VM is charged.
    pub(super) fn appraise(&mut self, cluster: &Cluster, owner: &Owner, now: Moment) {
        self.appraise_by(cluster, owner, Fall::OfThePrice, now);
    }

    /// The same, when an update of the VM is over for which this process had charged more.
    pub(super) fn appraise_after_growth(&mut self, cluster: &Cluster, owner: &Owner, now: Moment) {
        self.appraise_by(cluster, owner, Fall::OfOurs, now);
    }

    fn appraise_by(&mut self, cluster: &Cluster, owner: &Owner, fall: Fall, now: Moment) {
        let launchers = self.launchers(cluster, owner);
        let charge = cluster.machines.charge(owner, launchers.iter().filter_map(as_launcher));
        let charge = charge.map(|charge| {
            let charge = self.with_answers(cluster, owner, charge?);
            Some(self.with_growth(owner, charge))
        });
        let is_unknown = charge.is_err();
        let is_running =
            |id: &PodId| matches!(self.stages.get(*id), Stage::Counted { .. } | Stage::Assumed { .. });
        match charge {
            Ok(charge) => self.recharge(cluster, &owner.namespace, owner.uid.clone(), charge, fall, now),
            Err(_) if self.stages.owners().pods(owner).iter().any(is_running) => {}
            Err(_) => self.recharge(cluster, &owner.namespace, owner.uid.clone(), None, fall, now),
        }
        let Some(namespace) = cluster.namespaces.id(&owner.namespace) else { return };
        for id in self.pods_of_machine(cluster, namespace, &owner.uid) {
            let is_stuck = matches!(self.stages.get(id), Stage::Stuck(Stuck::Machine(_)));
            let is_to_be = is_unknown && matches!(self.stages.get(id), Stage::Waiting(_));
            if is_stuck || is_to_be || !self.is_paid_as_priced(cluster, id) {
                self.reclassify(cluster, id, namespace, now);
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

    /// Whether the pod claims on account of an owner if it should, and what it should.
    fn is_paid_as_priced(&self, cluster: &Cluster, id: PodId) -> bool {
        let Some(record) = cluster.pods.get(id) else { return true };
        let owners = self.stages.owners();
        let is_payer = |payer: &Payer| payer.owner.as_ref() == owners.owner_of(id);
        let payer = || self.payer(cluster, id, record);
        match self.stages.get(id) {
            Stage::Waiting(_) => {
                let payer = payer();
                is_payer(&payer) && owners.charged_with(id).is_none_or(|with| with == payer.charge)
            }
            // What a released target was to take stays until it is seen what it takes.
            Stage::Counted { charge, .. } => {
                let payer = payer();
                is_payer(&payer) && (payer.owner.is_none() || *charge == payer.charge)
            }
            Stage::Assumed { .. } => is_payer(&payer()),
            Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_) => true,
        }
    }

    /// All pods that are launchers of the VM, or that are charged as such: few, however many pods name it as their owner.
    pub fn pods_of_machine(&self, cluster: &Cluster, namespace: NamespaceId, machine: &Uid) -> Vec<PodId> {
        let Some(known) = cluster.namespaces.get(namespace) else { return Vec::new() };
        let owner = Owner { namespace: Arc::clone(&known.name), uid: machine.clone() };
        let mut pods = self.stages.owners().pods(&owner).to_vec();
        if let Some(controller) = cluster.machines.controller() {
            pods.extend(cluster.pods.of_owner(namespace, machine, controller));
            pods.extend(cluster.pods.oldest_unstamped(namespace, machine));
        }
        pods.sort_unstable();
        pods.dedup();
        pods
    }

    /// The launchers that the VM is charged by what they take: those that run, or if none does all.
    pub fn launchers(&self, cluster: &Cluster, owner: &Owner) -> Vec<PodRecord> {
        if !cluster.machines.depend_on_pods() {
            return Vec::new();
        }
        let Some(namespace) = cluster.namespaces.id(&owner.namespace) else { return Vec::new() };
        let pods = self.pods_of_machine(cluster, namespace, &owner.uid);
        let records = pods.iter().filter_map(|id| cluster.pods.get(*id));
        let launchers = records.filter(|record| cluster.is_launcher(record) && !record.is_over());
        let (running, held): (Vec<_>, Vec<_>) =
            launchers.cloned().partition(|record| record.gates == Gates::None);
        if running.is_empty() { held } else { running }
    }
}

/// What the VM is charged by of one of its launchers.
pub(super) fn as_launcher(record: &PodRecord) -> Option<Launcher<'_>> {
    let compute = &record.ownership()?.compute;
    Some(Launcher { whole: &record.charge, compute })
}

/// What is told of a pod whose VM cannot be counted.
pub fn unknown_text(unknown: &Unknown) -> String {
    match unknown {
        Unknown::Unseen => {
            "held: its VirtualMachineInstance is not known; create the pod again if that is gone".to_owned()
        }
        Unknown::Unreadable(why) => {
            format!("held: its VirtualMachineInstance cannot be counted: {why}")
        }
    }
}
