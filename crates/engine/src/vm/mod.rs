//! What a virtual machine takes (`docs/quota-semantics.md`, *What a VM is charged*): one charge for the VM, however many
//! pods it runs in.

mod calculator;
mod guest;
mod keys;
mod kubevirt_versions;
mod overhead;
mod rendering;

pub use calculator::{Calculator, Launcher, vm_charge};
pub use guest::{CpuAndMemory, CpuTopology, GuestSize, Side};
pub use overhead::{
    Feature, Features, KubeVirtFacts, OverheadFacts, OverheadRatio, largest_overhead, memory_overhead,
    overhead_of_interfaces,
};

pub(crate) use keys::not_taken;

use crate::charge::Amount;

/// What the charge of a VirtualMachineInstance depends on. What its status says is what KubeVirt wrote: KubeVirt undoes
/// updates of the status by others, and the admission policy `sluice-vmi-status` refuses creations with another size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmFacts {
    /// `spec.domain.resources.requests`.
    pub requests: CpuAndMemory,
    /// `spec.domain.resources.limits`.
    pub limits: CpuAndMemory,
    /// `spec.domain.memory.guest`.
    pub guest_memory: Option<Amount>,
    /// `spec.domain.cpu`.
    pub topology: Option<CpuTopology>,
    /// `spec.domain.ioThreads.supplementalPoolThreadCount`.
    pub io_threads: u32,
    /// `status.memory.guestRequested`: what the pod that runs the guest was made for. `guestCurrent` may be less, for a
    /// guest takes and gives back memory in steps.
    pub requested_memory: Option<Amount>,
    /// `status.currentCPUTopology`.
    pub current_topology: Option<CpuTopology>,
    /// What the memory beside the guest depends on.
    pub overhead: OverheadFacts,
}

/// Why a VM has no charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VmError {
    /// KubeVirt multiplies in 32 bits: what it would run is not known.
    #[error(
        "counting CPUs: {side}: {} cores, {} sockets and {} threads are more than 4294967295 CPUs, lower one of them",
        topology.cores, topology.sockets, topology.threads
    )]
    TooManyCpus {
        /// Where it is written.
        side: Side,
        topology: CpuTopology,
    },
    /// An amount is below zero or above [`Amount::LIMIT`].
    #[error("counting {resource}: the VM's amount is negative or above 2e22, correct it")]
    OutOfRange {
        /// `cpu` or `memory`.
        resource: &'static str,
    },
    /// The VM says nowhere how much memory it has. KubeVirt refuses such VMs.
    #[error(
        "counting memory: the VM states none, set spec.domain.memory.guest, \
         or memory in the requests or limits of spec.domain.resources"
    )]
    NoMemory,
}
