//! VirtualMachineInstances: virtual machines that run.

mod facts;
mod wire;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use sluice_engine::Uid;
use sluice_engine::vm::VmFacts;

pub use facts::VmiError;
pub use wire::{
    BindingWire, CpuWire, DevicesWire, DomainResourcesWire, DomainWire, FirmwareWire, InterfaceWire,
    IoThreadsWire, LaunchSecurityWire, MemoryStatusWire, MemoryWire, PlugWire, ProbeWire, TpmWire,
    VmiSpecWire, VolumeWire,
};

use super::kubevirt::kubevirt_kind;
use crate::store::{Indexed, Record, Store};

/// A virtual machine that runs.
#[derive(Clone, Debug, Deserialize)]
pub struct VmiWire {
    /// Name, namespace, uid, version and times, of the annotations the key of the one that asks for an even number of CPUs,
    /// and the reference to the VirtualMachine that controls it.
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
    /// The CPUs that it has.
    #[serde(default, rename = "currentCPUTopology")]
    pub current_cpu_topology: Option<CpuWire>,
    /// The memory that it has.
    #[serde(default)]
    pub memory: Option<MemoryStatusWire>,
    /// Its last migration.
    #[serde(default)]
    pub migration_state: Option<MigrationStateWire>,
}

/// `status.migrationState` of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationStateWire {
    #[serde(default)]
    pub migration_uid: Option<String>,
    #[serde(default)]
    pub end_timestamp: Option<Time>,
    /// It came to nothing.
    #[serde(default)]
    pub failed: bool,
    /// Where the machine ran before.
    #[serde(default)]
    pub source_node: Option<String>,
}

/// The last migration of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastMigration {
    pub uid: Uid,
    /// When it ended, in seconds since the epoch; `None` while it is under way.
    pub ended: Option<i64>,
    /// It came to nothing.
    pub failed: bool,
    /// Where the machine ran before.
    pub source_node: Option<Box<str>>,
}

/// The VirtualMachine that a VirtualMachineInstance was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmReference {
    pub name: Arc<str>,
    pub uid: Uid,
}

/// What is kept of a VirtualMachineInstance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmi {
    /// `status.nodeName`, if it is not empty.
    pub node: Option<Box<str>>,
    /// `status.phase` is `Running`.
    pub running: bool,
    /// Its last migration, from when KubeVirt has handed it to the nodes.
    pub last_migration: Option<LastMigration>,
    /// A volume was plugged in, which another pod attaches to each of its launchers.
    pub hot_plugs: bool,
    /// The state of its TPM or firmware is kept on a volume.
    pub keeps_state: bool,
    /// What its charge depends on, or which number of that cannot be read. What its status says of sizes is what KubeVirt
    /// says: the admission policy `sluice-vmi-status` refuses to create it with other sizes.
    pub size: Result<VmFacts, VmiError>,
    /// The VirtualMachine that controls it.
    pub made_from: Option<Box<VmReference>>,
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
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VmiRecord>> {
        self.store.get(namespace, name)
    }

    /// Those of a namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> &[Arc<VmiRecord>] {
        self.store.in_namespace(namespace)
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
        Vmi {
            node: wire.status.node_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
            running: wire.status.phase.as_deref() == Some("Running"),
            last_migration: wire.status.migration_state.as_ref().map(|last| LastMigration {
                uid: Uid::parse(last.migration_uid.as_deref().unwrap_or_default()),
                ended: last.end_timestamp.as_ref().map(|time| time.0.as_second()),
                failed: last.failed,
                source_node: last.source_node.as_deref().map(Into::into),
            }),
            hot_plugs: wire.spec.hot_plugs(),
            keeps_state: wire.spec.domain.keeps_state(),
            size: facts::facts(wire),
            made_from: wire.metadata.owner_references.iter().flatten().next().map(|owner| {
                Box::new(VmReference { name: owner.name.as_str().into(), uid: Uid::parse(&owner.uid) })
            }),
        }
    }
}
