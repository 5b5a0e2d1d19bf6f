//! Which pods are launchers of VMs, of which VM, and whether that can be counted.

use sluice_engine::vm::Launcher;
use sluice_engine::{PodId, Uid};
use sluice_index::{Gates, NamespaceId, PlatformPod, PodFacts, PodRecord};

use super::Cluster;
use super::machines::{Owner, Unknown};
use crate::platform::Exemption;

impl Cluster {
    pub fn owner_that_depends_on(&self, record: &PodRecord) -> Option<Owner> {
        if !self.machines.are_charged() || !self.is_launcher(record) {
            return None;
        }
        // What a VM takes that is known does not depend on its pods, but what one takes that is not known ends with them. Of
        // pods without a stamp which one is a launcher depends on the others.
        let by_pods = is_unstamped(record) || self.machines.depend_on_pods();
        self.claimed_owner(record).filter(|owner| by_pods || !self.machines.knows(owner))
    }

    /// Why the pod cannot be decided on although it can be read: its VM cannot be counted.
    pub fn machine_obstacle(&self, record: &PodRecord) -> Option<Unknown> {
        let owner = self.claimed_owner(record).filter(|_| self.is_launcher(record))?;
        self.machines.charge(&owner, without_launchers()).err()
    }

    /// Whether the pod is one of a VM, and not only claims to be: KubeVirt's controller has created it. Of those that were
    /// created before there was a stamp, one at a time is believed, the oldest.
    pub fn is_launcher(&self, record: &PodRecord) -> bool {
        let Some(ownership) = record.ownership() else { return false };
        match &ownership.created_by {
            Some(creator) => self.machines.is_controller(creator),
            None => {
                let oldest = self.pods.oldest_unstamped(record.namespace, &ownership.machine);
                let oldest = oldest.and_then(|id| self.pods.get(id));
                self.machines.has_controller()
                    && record.gates == Gates::None
                    && oldest.is_none_or(|oldest| age(record) <= age(oldest))
            }
        }
    }

    /// The VM that the pod says controls it.
    pub fn claimed_owner(&self, record: &PodRecord) -> Option<Owner> {
        let ownership = record.ownership()?;
        Some(Owner::claimed(&self.namespaces.get(record.namespace)?.name, ownership))
    }

    /// The pod as it is known, if what others are charged may depend on it.
    pub fn known_claimant(&self, facts: &PodFacts) -> Option<PodRecord> {
        let namespace = self.namespaces.id(&facts.namespace).filter(|_| self.pods.have_attached())?;
        self.claimant(self.pods.find(namespace, &facts.name)?)
    }

    /// The pod if it names a VM and any pod is attached to another.
    pub fn claimant(&self, id: PodId) -> Option<PodRecord> {
        let is_claimant = |record: &&PodRecord| record.ownership().is_some() && self.pods.have_attached();
        self.pods.get(id).filter(is_claimant).cloned()
    }

    /// Whether what the pod takes is not charged, or may not be: it is a launcher of a VM that is, or may be exempt.
    pub fn is_fixed(&self, facts: &PodFacts, namespace: Option<NamespaceId>) -> bool {
        let kubevirt = self.machines.controller();
        let exemption = |platform: &PlatformPod| {
            self.config.platform.exemption(&facts.name, &platform.created_by, kubevirt)
        };
        if facts.platform.as_ref().is_some_and(|platform| exemption(platform) != Exemption::Never) {
            return true;
        }
        let ownership = facts.ownership.as_ref().filter(|_| self.machines.are_charged());
        ownership.is_some_and(|ownership| match &ownership.created_by {
            Some(creator) => self.machines.is_controller(creator),
            None => {
                let known = namespace.and_then(|id| self.pods.get(self.pods.find(id, &facts.name)?));
                known.is_some_and(|record| record.uid == facts.uid && self.is_launcher(record))
            }
        })
    }
}

/// Whether the pod claims a VM and was created before there was a stamp.
fn is_unstamped(record: &PodRecord) -> bool {
    record.ownership().is_some_and(|ownership| ownership.created_by.is_none())
}

/// The order in which pods were created.
pub fn age(record: &PodRecord) -> (i64, &Uid) {
    (record.created, &record.uid)
}

/// What a VM takes by its pods is known if that of one without any is.
fn without_launchers<'c>() -> std::iter::Empty<Launcher<'c>> {
    std::iter::empty()
}
