//! Owners that are charged in place of their pods: a VM's charge is one, however many pods it has.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_engine::{Charge, PodId, WaitKey};

use crate::cluster::machines::Owner;

/// What is charged for a pod.
#[derive(Clone, Debug)]
pub struct Payer {
    /// What the owner is charged with this pod if there is an owner, else the pod's own charge.
    pub charge: Arc<Charge>,
    pub owner: Option<Arc<Owner>>,
}

impl Payer {
    /// The pod itself.
    pub const fn pod(charge: Arc<Charge>) -> Self {
        Self { charge, owner: None }
    }
}

/// Why an owner may be charged less than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fall {
    /// What the owner takes is known better.
    OfThePrice,
    /// What this process had charged beside that is over.
    OfOurs,
}

#[derive(Debug)]
struct Account {
    owner: Arc<Owner>,
    /// None: it is not charged any more, and each of its pods is about to be charged for itself.
    charge: Option<Arc<Charge>>,
    pods: Vec<PodId>,
}

/// A pod that has begun to wait on account of an owner.
#[derive(Clone, Debug)]
pub struct Wait {
    pub key: WaitKey,
    /// What the owner is to be charged once the pod runs, at least, if that is more than it is charged without it.
    pub with: Option<Arc<Charge>>,
}

#[derive(Debug)]
struct Member {
    owner: Arc<Owner>,
    /// If it has waited on account of the owner.
    wait: Option<Wait>,
}

/// Invariant: an account's pods are its members. A pod is a member from when it begins to wait or to claim on account of an
/// owner until that ends. There is an account as long as the owner is charged or has members.
#[derive(Debug, Default)]
pub struct Owners {
    accounts: HashMap<Arc<Owner>, Account>,
    members: HashMap<PodId, Member>,
}

impl Owners {
    /// Whether no owner is charged: then no pod has to be asked about.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// The owner by the copy that is kept, and its charge; `None` if it is not charged.
    pub fn charged(&self, owner: &Owner) -> Option<(Arc<Owner>, Arc<Charge>)> {
        let account = self.accounts.get(owner)?;
        Some((Arc::clone(&account.owner), account.charge.clone()?))
    }

    /// From now on the owner is charged this, or nothing.
    pub fn set_charge(&mut self, owner: &Arc<Owner>, charge: Option<Arc<Charge>>) {
        let account = self.accounts.entry(Arc::clone(owner)).or_insert_with(|| Account {
            owner: Arc::clone(owner),
            charge: None,
            pods: Vec::new(),
        });
        account.charge = charge;
        self.forget_if_unused(owner);
    }

    /// The owner that is charged for a pod that waits or claims.
    pub fn owner_of(&self, pod: PodId) -> Option<&Arc<Owner>> {
        self.members.get(&pod).map(|member| &member.owner)
    }

    /// All pods that wait or claim on account of an owner.
    pub fn members(&self) -> impl Iterator<Item = (PodId, &Arc<Owner>)> {
        self.members.iter().map(|(pod, member)| (*pod, &member.owner))
    }

    /// If the pod has waited on account of its owner.
    pub fn wait(&self, pod: PodId) -> Option<&Wait> {
        self.members.get(&pod)?.wait.as_ref()
    }

    /// What the pod's owner is to be charged once the pod runs; `None` if it is not charged.
    pub fn charged_with(&self, pod: PodId) -> Option<Arc<Charge>> {
        let member = self.members.get(&pod)?;
        let charge = self.accounts.get(&member.owner)?.charge.as_ref()?;
        let with = member.wait.as_ref().and_then(|wait| wait.with.as_ref());
        Some(with.map_or_else(|| Arc::clone(charge), |with| Arc::new(charge.max(with))))
    }

    pub fn pods(&self, owner: &Owner) -> &[PodId] {
        self.accounts.get(owner).map_or(&[], |account| &account.pods)
    }

    pub fn join(&mut self, pod: PodId, owner: &Arc<Owner>, wait: Option<Wait>) {
        if let Some(account) = self.accounts.get_mut(owner)
            && self.members.insert(pod, Member { owner: Arc::clone(owner), wait }).is_none()
        {
            account.pods.push(pod);
        }
    }

    pub fn leave(&mut self, pod: PodId) {
        let Some(Member { owner, .. }) = self.members.remove(&pod) else { return };
        if let Some(account) = self.accounts.get_mut(&owner) {
            account.pods.retain(|other| *other != pod);
        }
        self.forget_if_unused(&owner);
    }

    fn forget_if_unused(&mut self, owner: &Owner) {
        if self.accounts.get(owner).is_some_and(|account| account.charge.is_none() && account.pods.is_empty())
        {
            self.accounts.remove(owner);
        }
    }
}
