//! Virtual machines that run.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::store::{Indexed, Record, Store};
use crate::wire::MachineWire;

/// What is kept of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `spec.priorityClassName`, if it is not empty.
    pub priority_class: Option<Box<str>>,
    /// `status.nodeName`, if it is not empty.
    pub node: Option<Box<str>>,
}

/// A VirtualMachineInstance.
pub type MachineRecord = Record<Machine>;

/// All VirtualMachineInstances.
#[derive(Debug, Default)]
pub struct Machines {
    store: Store<Machine>,
}

impl Machines {
    /// One by its name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<MachineRecord>> {
        self.store.get(namespace, name)
    }
}

impl Indexed for Machines {
    type Wire = MachineWire;
    type Body = Machine;

    fn store_mut(&mut self) -> &mut Store<Machine> {
        &mut self.store
    }
    fn meta(wire: &MachineWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &MachineWire) -> Machine {
        Machine { priority_class: text(&wire.spec.priority_class_name), node: text(&wire.status.node_name) }
    }
}

/// A text that is there and not empty.
pub(super) fn text(text: &Option<String>) -> Option<Box<str>> {
    text.as_deref().filter(|text| !text.is_empty()).map(Into::into)
}
