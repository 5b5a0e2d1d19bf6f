//! Who owns a pod and who has created it, as the pod has it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::names;
use sluice_engine::{Charge, Uid};

/// The longest name of a service account: prefix, namespace and name. Longer names of users are not kept, for it is service
/// accounts that create pods of VMs.
const LONGEST: usize = "system:serviceaccount:".len() + 63 + 1 + 253;

/// What is kept of a pod that a VirtualMachineInstance controls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The uid of the VirtualMachineInstance. A client that may update pods may write any value: a claim, not evidence.
    pub machine: Uid,
    /// Who created the pod, by the stamp of admission; empty if the name is longer than any of a service account. None: it was
    /// created before there was a stamp.
    pub created_by: Option<Arc<str>>,
    /// What the pod would take if the container of the guest was all it had.
    pub compute: Arc<Charge>,
}

impl Ownership {
    /// Reads it from the metadata of a pod. `compute` says what the container of the guest takes.
    #[must_use]
    pub fn of(meta: &ObjectMeta, compute: impl FnOnce() -> Charge) -> Option<Self> {
        let machine = meta.owner_references.as_ref()?.first()?;
        let stamp = meta.annotations.as_ref().and_then(|known| known.get(names::CREATED_BY_ANNOTATION));
        let created_by = stamp.map(|name| if name.len() > LONGEST { "" } else { name }.into());
        Some(Self { machine: Uid::parse(&machine.uid), created_by, compute: Arc::new(compute()) })
    }
}
