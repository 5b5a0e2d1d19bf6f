//! The ways to count a virtual machine.

use std::sync::LazyLock;

use super::{KubeVirtFacts, VmError, VmFacts, memory_overhead};
use crate::charge::{Amount, Charge};
use crate::resource::Resource;

/// A way to count a virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Calculator {
    /// What its pods ask for.
    VmiPodUsage,
    /// The guest's CPUs and memory, as those of a pod.
    VirtualResources,
    /// The guest's CPUs and memory, as resources of VMs (`cpu/vmi` and others).
    #[default]
    DedicatedVirtualResources,
    /// What the container of the guest asks for, without what KubeVirt adds to its memory.
    GuestEffectiveResources,
    /// Its pods are charged as any others.
    IgnoreVmiCalculator,
}

impl Calculator {
    /// Whether VMs are charged in place of their pods.
    #[must_use]
    pub const fn counts_machines(self) -> bool {
        !matches!(self, Self::IgnoreVmiCalculator)
    }

    /// Whether the charge depends on what the pods ask for.
    #[must_use]
    pub const fn is_of_pods(self) -> bool {
        matches!(self, Self::VmiPodUsage | Self::GuestEffectiveResources)
    }
}

/// A pod that runs a guest, or is about to.
#[derive(Clone, Copy, Debug)]
pub struct Launcher<'c> {
    /// What the pod takes.
    pub whole: &'c Charge,
    /// What it would take if the container of the guest was all it had.
    pub compute: &'c Charge,
}

/// What a VM takes that has these launchers. `None`: each of its pods is charged for itself.
///
/// # Errors
/// See [`VmError`].
pub fn vm_charge<'c>(
    calculator: Calculator,
    vm: &VmFacts,
    launchers: impl IntoIterator<Item = Launcher<'c>>,
    kubevirt: Option<&KubeVirtFacts>,
) -> Result<Option<Charge>, VmError> {
    match calculator {
        Calculator::IgnoreVmiCalculator => Ok(None),
        Calculator::VirtualResources => {
            let size = vm.size()?;
            let pod = [(Resource::Pods, Amount::ONE), (Resource::CountPods, Amount::ONE)];
            let cpu = [Resource::Cpu, Resource::LimitsCpu].map(|resource| (resource, size.cpu));
            let memory = [Resource::Memory, Resource::LimitsMemory].map(|resource| (resource, size.memory));
            Ok(Some(Charge::from_pairs(pod.into_iter().chain(cpu).chain(memory))))
        }
        Calculator::DedicatedVirtualResources => {
            let size = vm.size()?;
            let [instances, cpu, memory] = DEDICATED.clone();
            Ok(Some(Charge::from_pairs([(instances, Amount::ONE), (cpu, size.cpu), (memory, size.memory)])))
        }
        Calculator::VmiPodUsage => Ok(largest(launchers.into_iter().map(|it| it.whole.clone()))),
        Calculator::GuestEffectiveResources => {
            let overhead = kubevirt.map(|kubevirt| memory_overhead(vm, kubevirt)).transpose()?;
            let overhead = overhead.unwrap_or_default();
            Ok(largest(launchers.into_iter().map(|it| without_overhead(it.compute, overhead))))
        }
    }
}

/// Made once: a charge holds a reference to each.
static DEDICATED: LazyLock<[Resource; 3]> =
    LazyLock::new(|| ["instances/vmi", "cpu/vmi", "memory/vmi"].map(Resource::from_quota_key));

/// Several pods of a VM take what the largest of them does. Without pods nothing is charged for the VM: an empty charge would
/// let each of them go for nothing.
fn largest(charges: impl Iterator<Item = Charge>) -> Option<Charge> {
    charges.reduce(|left, right| left.max(&right))
}

fn without_overhead(compute: &Charge, overhead: Amount) -> Charge {
    Charge::from_pairs(compute.iter().map(|(resource, amount)| match resource {
        Resource::Memory | Resource::LimitsMemory => {
            (resource.clone(), amount.saturating_sub(overhead).max(Amount::ZERO))
        }
        _ => (resource.clone(), *amount),
    }))
}
