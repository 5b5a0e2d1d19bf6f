//! Who owns a pod and who has created it, as the pod has it.

use std::ops::Bound;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_api::names;
use sluice_engine::{Charge, PodId, Uid};

use super::records::Pods;
use super::types::{Creator, OwnerKey, Ownership, UnstampedKey};
use crate::kinds::namespace::NamespaceId;

/// The longest name of a service account: prefix, namespace and name. Longer names of users are not kept, for it is service
/// accounts that create pods of VMs.
const LONGEST: usize = "system:serviceaccount:".len() + 63 + 1 + 253;

impl Ownership {
    /// Reads it from the metadata of a pod. `compute` says what the container of the guest takes.
    #[must_use]
    pub fn of(meta: &ObjectMeta, compute: impl FnOnce() -> Charge) -> Option<Self> {
        let (machine, created_by) = (Uid::parse(&machine(meta)?.uid), creator(meta));
        let migration = meta.labels.as_ref().and_then(|labels| labels.get(names::MIGRATION_JOB_LABEL));
        let migration = migration.map(|uid| Box::new(Uid::parse(uid)));
        Some(Self { machine, created_by, migration, compute: Arc::new(compute()) })
    }
}

/// Who created a pod, by the stamp of admission; empty if the name is longer than any of a service account.
pub(super) fn creator(meta: &ObjectMeta) -> Option<Arc<str>> {
    let stamp = meta.annotations.as_ref()?.get(names::CREATED_BY_ANNOTATION)?;
    Some(if stamp.len() > LONGEST { "" } else { stamp }.into())
}

/// The VirtualMachineInstance that the pod names as its owner.
fn machine(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.kind == "VirtualMachineInstance")
}

/// Whether the pod may be one that KubeVirt's controller has created, by the stamp of admission, wherever KubeVirt is
/// installed. An account of that name in another namespace passes for it, and so does a pod without a
/// stamp that names a machine as its owner.
pub(super) fn may_be_of_kubevirt(meta: &ObjectMeta) -> bool {
    match meta.annotations.as_ref().and_then(|known| known.get(names::CREATED_BY_ANNOTATION)) {
        Some(stamp) => stamp.rsplit(':').next() == Some(names::KUBEVIRT_CONTROLLER_ACCOUNT),
        None => machine(meta).is_some(),
    }
}

impl Pods {
    /// The pods of a namespace that name this VirtualMachineInstance as their owner, and that this account has created.
    #[must_use]
    pub fn of_owner(&self, namespace: NamespaceId, owner: &Uid, creator: &str) -> Vec<PodId> {
        let creator = Creator::Stamped(creator.into());
        let key = |id| (namespace, owner.clone(), creator.clone(), PodId(id));
        self.by_owner.range(key(0)..=key(u32::MAX)).map(|(.., id)| *id).collect()
    }

    /// The pods that name a VirtualMachineInstance as their owner, and that this account has created. Costs time in the
    /// number of all pods of VMs.
    pub fn created_by(&self, creator: &str) -> impl Iterator<Item = PodId> {
        let is_it = move |by: &Creator| matches!(by, Creator::Stamped(by) if **by == *creator);
        self.by_owner.iter().filter(move |(_, _, by, _)| is_it(by)).map(|(.., id)| *id)
    }

    /// Of the pods that name this VirtualMachineInstance as their owner, that were created before there was a stamp and that
    /// are not over, the oldest.
    #[must_use]
    pub fn oldest_unstamped(&self, namespace: NamespaceId, owner: &Uid) -> Option<PodId> {
        let first = (namespace, owner.clone(), i64::MIN, Uid::parse(""), PodId(0));
        let (of_namespace, of_owner, .., id) = self.unstamped.range(first..).next()?;
        (*of_namespace == namespace && of_owner == owner).then_some(*id)
    }

    /// The first VirtualMachineInstance that pods name as their owner; with `after`, the one after that.
    #[must_use]
    pub fn next_owner(&self, after: Option<&(NamespaceId, Uid)>) -> Option<(NamespaceId, Uid)> {
        let last = |(namespace, owner): &(NamespaceId, Uid)| {
            (*namespace, owner.clone(), Creator::Last, PodId(u32::MAX))
        };
        let after = after.map_or(Bound::Unbounded, |after| Bound::Excluded(last(after)));
        let (namespace, owner, ..) = self.by_owner.range((after, Bound::Unbounded)).next()?;
        Some((*namespace, owner.clone()))
    }

    pub(super) fn owner_key(&self, id: PodId) -> Option<OwnerKey> {
        let record = self.get(id)?;
        let ownership = record.ownership()?;
        let creator = ownership.created_by.clone().map_or(Creator::Unknown, Creator::Stamped);
        Some((record.namespace, ownership.machine.clone(), creator, id))
    }

    pub(super) fn unstamped_key(&self, id: PodId) -> Option<UnstampedKey> {
        let record = self.get(id).filter(|record| !record.is_over())?;
        let ownership = record.ownership().filter(|ownership| ownership.created_by.is_none())?;
        Some((record.namespace, ownership.machine.clone(), record.created, record.uid.clone(), id))
    }

    /// Replaces the name by an equal one that is there already.
    pub(super) fn share_creator(&mut self, name: &mut Arc<str>) {
        match self.creators.get(name) {
            Some(known) => *name = Arc::clone(known),
            None => drop(self.creators.insert(Arc::clone(name))),
        }
    }
}
