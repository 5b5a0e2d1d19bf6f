//! What grants a namespace head-room, as it was read beside the watches.

use std::sync::Arc;

use crate::kinds::headroom_policy::HeadroomPolicyWire;
use crate::kinds::namespace::NamespaceWire;
use crate::kinds::vmmrq::VmmrqWire;

/// What a budget is made of.
#[derive(Clone, Debug)]
pub struct BudgetWires {
    /// What was known before it was read: of these, what is not found is gone.
    pub asked: GrantNames,
    /// The namespace's own grants.
    pub vmmrqs: Vec<VmmrqWire>,
    pub policies: Vec<HeadroomPolicyWire>,
    /// The namespace, by whose labels policies select.
    pub namespace: Option<NamespaceWire>,
}

/// Names of objects that grant something.
#[derive(Clone, Debug, Default)]
pub struct GrantNames {
    /// `VirtualMachineMigrationResourceQuota`s of the namespace.
    pub vmmrqs: Vec<Arc<str>>,
    /// `HeadroomPolicy`s.
    pub policies: Vec<Arc<str>>,
}
