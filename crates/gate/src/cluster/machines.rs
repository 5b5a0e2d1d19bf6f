//! Virtual machines, and how they are counted.

use std::ops::Bound;
use std::sync::Arc;

use sluice_engine::headroom::Allowance;
use sluice_engine::vm::{Calculator, KubeVirtFacts, Launcher, VmFacts, vm_charge};
use sluice_engine::{Charge, Uid};
use sluice_index::{Listed, Ownership, Source, Version, VmReference, VmiError, VmiRecord};

use crate::config::Moment;

/// A VM that may be charged in place of its pods. VMs of different namespaces are different, whatever their pods claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub namespace: Arc<str>,
    pub uid: Uid,
}

/// An installation of KubeVirt.
#[derive(Clone, Debug, PartialEq)]
pub struct KubeVirt {
    /// Who creates the pods of its VMs.
    pub controller: Arc<str>,
    /// What it adds to them.
    pub facts: KubeVirtFacts,
}

#[derive(Debug)]
struct Machine {
    name: Arc<str>,
    made_from: Option<Box<VmReference>>,
    version: Version,
    size: Result<VmFacts, VmiError>,
    /// Nothing is told of it before this moment (milliseconds).
    told_until_ms: u64,
}

/// So long after an event about a VM there is no other (milliseconds).
const TOLD_AGAIN_MS: u64 = 10_000;

/// Why a VM has no charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It was not seen, or is no more.
    Unseen,
    /// It says something that cannot be counted.
    Unreadable(Arc<str>),
}

/// All VMs.
#[derive(Debug)]
pub struct Machines {
    calculator: Calculator,
    kubevirt: Option<KubeVirt>,
    known: Listed<Owner, Machine>,
}

impl Default for Machines {
    fn default() -> Self {
        Self { calculator: Calculator::IgnoreVmiCalculator, kubevirt: None, known: Listed::default() }
    }
}

impl Machines {
    /// Whether VMs are charged in place of their pods.
    pub fn are_charged(&self) -> bool {
        self.calculator != Calculator::IgnoreVmiCalculator
    }

    /// How VMs are counted; `None` where no KubeVirt is known to run.
    pub fn counted_by(&self) -> Option<Calculator> {
        self.kubevirt.as_ref().map(|_| self.calculator)
    }

    /// Whether what pods take matters to the charge of their VM.
    pub fn depend_on_pods(&self) -> bool {
        self.calculator.is_of_pods()
    }

    /// Whether this account creates the pods of VMs.
    pub fn is_controller(&self, account: &str) -> bool {
        self.kubevirt.as_ref().is_some_and(|kubevirt| *kubevirt.controller == *account)
    }

    /// Whether it is known who creates the pods of VMs.
    pub fn has_controller(&self) -> bool {
        self.kubevirt.is_some()
    }

    /// From now on they are counted so. Returns whether that is something else.
    pub fn set_calculator(&mut self, calculator: Calculator) -> bool {
        std::mem::replace(&mut self.calculator, calculator) != calculator
    }

    /// From now on this KubeVirt runs. Returns whether that is something else.
    pub fn set_kubevirt(&mut self, kubevirt: Option<KubeVirt>) -> bool {
        let is_another = self.kubevirt != kubevirt;
        self.kubevirt = kubevirt;
        is_another
    }

    /// The name of the user that KubeVirt's controller is.
    pub fn controller(&self) -> Option<&str> {
        self.kubevirt.as_ref().map(|kubevirt| &*kubevirt.controller)
    }

    pub fn begin_list(&mut self) {
        self.known.begin_list();
    }

    /// A VM was seen. Returns whether its size is news.
    pub fn see(&mut self, record: &VmiRecord, by: Source) -> bool {
        let owner = Owner { namespace: Arc::clone(&record.namespace), uid: record.uid.clone() };
        let (version, size) = (record.version, record.size.clone());
        if let Some(known) = self.known.see(&owner, by) {
            if version.is_older_than(known.version) {
                return false;
            }
            known.version = version;
            if known.size == size {
                return false;
            }
        }
        let (name, made_from) = (Arc::clone(&record.name), record.made_from.clone());
        self.known.insert(owner, Machine { name, made_from, version, size, told_until_ms: 0 });
        true
    }

    /// A VM is gone. Returns whether it was known.
    pub fn forget(&mut self, owner: &Owner) -> bool {
        self.known.remove(owner).is_some()
    }

    /// The list is complete: forgets the VMs that were not in it, and returns them.
    pub fn end_list(&mut self) -> Vec<Owner> {
        self.known.end_list().into_iter().map(|(owner, _)| owner).collect()
    }

    /// Whether the VM was seen.
    pub fn knows(&self, owner: &Owner) -> bool {
        self.known.get(owner).is_some()
    }

    /// The VMs of a namespace that were seen, with their names.
    pub fn in_namespace<'m>(
        &'m self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = (&'m Owner, &'m Arc<str>)> {
        let first = Owner { namespace: Arc::clone(namespace), uid: Uid::from_number(0) };
        let from = self.known.range(first.clone()..).map(|(owner, machine)| (owner, &machine.name));
        from.take_while(move |(owner, _)| owner.namespace == first.namespace)
    }

    /// The VM of this name.
    pub fn find(&self, namespace: &Arc<str>, name: &str) -> Option<&Owner> {
        self.in_namespace(namespace).find(|(_, known)| ***known == *name).map(|(owner, _)| owner)
    }

    /// `metadata.name` of the VM if it was seen.
    pub fn name(&self, owner: &Owner) -> Option<&Arc<str>> {
        self.known.get(owner).map(|machine| &machine.name)
    }

    /// `metadata.name` of the VM if it was seen, and the VirtualMachine that it was made from.
    pub fn names(&self, owner: &Owner) -> Option<(Arc<str>, Option<VmReference>)> {
        let machine = self.known.get(owner)?;
        Some((Arc::clone(&machine.name), machine.made_from.as_deref().cloned()))
    }

    /// Whether something is to be told of the VM now: each time after a while only.
    pub fn tell(&mut self, owner: &Owner, now: Moment) -> bool {
        let machine = self.known.get_mut(owner).filter(|machine| machine.told_until_ms <= now.mono_ms);
        machine.map(|machine| machine.told_until_ms = now.mono_ms + TOLD_AGAIN_MS).is_some()
    }

    /// The version of the VM that was seen last.
    pub fn version(&self, owner: &Owner) -> Option<Version> {
        self.known.get(owner).map(|machine| machine.version)
    }

    /// The first VM that was seen; with `after`, the one after that.
    pub fn next_seen(&self, after: Option<&Owner>) -> Option<&Owner> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.known.range((after, Bound::Unbounded)).next().map(|(owner, _)| owner)
    }

    /// What the VM is charged that has these launchers; `None`: each of its pods is charged for itself.
    pub fn charge<'c>(
        &self,
        owner: &Owner,
        launchers: impl Iterator<Item = Launcher<'c>>,
    ) -> Result<Option<Charge>, Unknown> {
        if !self.are_charged() {
            return Ok(None);
        }
        let machine = self.known.get(owner).ok_or(Unknown::Unseen)?;
        self.charge_of(&machine.size, launchers)
    }

    /// The same of a VM of this size.
    pub fn charge_of<'c>(
        &self,
        size: &Result<VmFacts, VmiError>,
        launchers: impl Iterator<Item = Launcher<'c>>,
    ) -> Result<Option<Charge>, Unknown> {
        let unreadable = |error: String| Unknown::Unreadable(error.into());
        let vm = size.as_ref().map_err(|error| unreadable(error.to_string()))?;
        let kubevirt = self.kubevirt.as_ref().map(|kubevirt| &kubevirt.facts);
        let charge = vm_charge(self.calculator, vm, launchers, kubevirt);
        charge.map_err(|error| unreadable(error.to_string()))
    }

    /// What KubeVirt may do to the VM from one launcher to the next. `limit_ratio`: that of its namespace.
    pub fn allowance(&self, owner: &Owner, limit_ratio: i128) -> Allowance {
        let size = self.known.get(owner).and_then(|machine| machine.size.as_ref().ok());
        let kubevirt = self.kubevirt.as_ref().map(|kubevirt| &kubevirt.facts);
        let allowance = size.zip(kubevirt).map(|(size, kubevirt)| Allowance::of(size, kubevirt, limit_ratio));
        allowance.unwrap_or_default()
    }
}

impl Owner {
    /// The VM that a pod of a namespace claims as its owner.
    pub fn claimed(namespace: &Arc<str>, ownership: &Ownership) -> Self {
        Self { namespace: Arc::clone(namespace), uid: Uid::clone(&ownership.machine) }
    }
}
