//! VirtualMachineInstances: virtual machines that run.

mod facts;
mod wire;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use sluice_engine::vm::VmFacts;

pub use facts::VmiError;
pub use wire::{
    BindingWire, CpuWire, DevicesWire, DomainResourcesWire, DomainWire, InterfaceWire, IoThreadsWire,
    LaunchSecurityWire, MemoryStatusWire, MemoryWire, ProbeWire, TpmWire, VmiSpecWire, VolumeWire,
};

use super::kubevirt::{ConditionWire, kubevirt_kind};
use crate::store::{Indexed, Record, Store};

/// A virtual machine that runs.
#[derive(Clone, Debug, Deserialize)]
pub struct VmiWire {
    /// Name, namespace, uid, version and times, and of the annotations the key of the one that asks for an even number of CPUs.
    #[serde(deserialize_with = "crate::meta::of_vmi")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: VmiSpecWire,
    /// The part of the status that matters here.
    #[serde(default)]
    pub status: VmiStatusWire,
}
kubevirt_kind!(VmiWire, "VirtualMachineInstance", "virtualmachineinstances");

/// `status` of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmiStatusWire {
    /// Where it runs.
    #[serde(default)]
    pub node_name: Option<String>,
    /// How far it is: `Running` and others.
    #[serde(default)]
    pub phase: Option<String>,
    /// What is true of it.
    #[serde(default)]
    pub conditions: Option<Vec<ConditionWire>>,
    /// The CPUs that it has.
    #[serde(default, rename = "currentCPUTopology")]
    pub current_cpu_topology: Option<CpuWire>,
    /// The memory that it has.
    #[serde(default)]
    pub memory: Option<MemoryStatusWire>,
}

/// Conditions of a machine that gets more CPUs or memory (`staging/src/kubevirt.io/api/core/v1/types.go`).
const HOT_PLUGS: [&str; 2] = ["HotVCPUChange", "HotMemoryChange"];

/// What is kept of a VirtualMachineInstance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmi {
    /// `status.nodeName`, if it is not empty.
    pub node: Option<Box<str>>,
    /// `status.phase` is `Running`.
    pub running: bool,
    /// CPUs or memory were plugged in, which a migration is about to give it (conditions `HotVCPUChange`, `HotMemoryChange`).
    pub growing: bool,
    /// What its charge depends on, or which number of that cannot be read. What its status says of sizes is what KubeVirt
    /// says: the admission policy `sluice-vmi-status` refuses to create it with other sizes.
    pub size: Result<VmFacts, VmiError>,
}

/// A VirtualMachineInstance.
pub type VmiRecord = Record<Vmi>;

impl VmiRecord {
    /// Reads one that is not kept in [`Vmis`].
    #[must_use]
    pub fn read(wire: &VmiWire) -> Self {
        Self::new(&wire.metadata, Vmis::body(wire))
    }
}

/// All VirtualMachineInstances.
#[derive(Debug, Default)]
pub struct Vmis {
    store: Store<Vmi>,
}

impl Vmis {
    /// One by its name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VmiRecord>> {
        self.store.get(namespace, name)
    }
}

impl Indexed for Vmis {
    type Wire = VmiWire;
    type Body = Vmi;

    fn store_mut(&mut self) -> &mut Store<Vmi> {
        &mut self.store
    }
    fn meta(wire: &VmiWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &VmiWire) -> Vmi {
        let mut conditions = wire.status.conditions.iter().flatten();
        Vmi {
            node: wire.status.node_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
            running: wire.status.phase.as_deref() == Some("Running"),
            growing: conditions
                .any(|condition| HOT_PLUGS.contains(&&*condition.kind) && condition.status == "True"),
            size: facts::facts(wire),
        }
    }
}
