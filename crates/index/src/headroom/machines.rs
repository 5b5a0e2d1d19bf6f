//! Virtual machines that run.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::store::{Indexed, Record, Store};
use crate::wire::MachineWire;

/// Conditions of a machine that gets more CPUs or memory (`staging/src/kubevirt.io/api/core/v1/types.go`).
const HOT_PLUGS: [&str; 2] = ["HotVCPUChange", "HotMemoryChange"];

/// What is kept of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `status.nodeName`, if it is not empty.
    pub node: Option<Box<str>>,
    /// `status.phase` is `Running`.
    pub running: bool,
    /// CPUs or memory were plugged in, which a migration is about to give it (conditions `HotVCPUChange`, `HotMemoryChange`).
    pub growing: bool,
}

/// A VirtualMachineInstance.
pub type VmiRecord = Record<Machine>;

/// All VirtualMachineInstances.
#[derive(Debug, Default)]
pub struct Machines {
    store: Store<Machine>,
}

impl Machines {
    /// One by its name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VmiRecord>> {
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
        let mut conditions = wire.status.conditions.iter().flatten();
        Machine {
            node: wire.status.node_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
            running: wire.status.phase.as_deref() == Some("Running"),
            growing: conditions
                .any(|condition| HOT_PLUGS.contains(&&*condition.kind) && condition.status == "True"),
        }
    }
}
