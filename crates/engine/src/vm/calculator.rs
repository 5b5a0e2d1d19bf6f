//! The ways to count a virtual machine.

use std::sync::LazyLock;

use super::overhead::estimated_overhead;
use super::rendering::Rendering;
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
/// A VM that is to have more than it has takes what it is to have, also where that depends on pods and the one that brings
/// it is not there yet. Where that one is there it is among the launchers, and the charge is the same.
///
/// # Errors
/// See [`VmError`].
pub fn vm_charge<'c>(
    calculator: Calculator,
    vm: &VmFacts,
    launchers: impl IntoIterator<Item = Launcher<'c>>,
    kubevirt: Option<&KubeVirtFacts>,
) -> Result<Option<Charge>, VmError> {
    let is_growing = calculator.is_of_pods() && vm.is_growing()?;
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
        Calculator::VmiPodUsage => {
            let growth = kubevirt.filter(|_| is_growing);
            let growth =
                growth.map(|kubevirt| Ok((kubevirt, estimated_overhead(vm, kubevirt)?))).transpose()?;
            Ok(largest(launchers.into_iter().map(|it| match growth {
                Some((kubevirt, overhead)) => {
                    grown(it, &Rendering { vm, kubevirt, overhead, made: it.compute })
                }
                None => it.whole.clone(),
            })))
        }
        Calculator::GuestEffectiveResources => {
            let Some(kubevirt) = kubevirt else {
                return Ok(largest(launchers.into_iter().map(|it| it.compute.clone())));
            };
            let overhead = memory_overhead(vm, kubevirt)?;
            Ok(largest(launchers.into_iter().map(|it| {
                guest_part(it.compute, &Rendering { vm, kubevirt, overhead, made: it.compute }, is_growing)
            })))
        }
    }
}

/// Made once: a charge holds a reference to each.
static DEDICATED: LazyLock<[Resource; 3]> =
    LazyLock::new(|| ["instances/vmi", "cpu/vmi", "memory/vmi"].map(Resource::from_quota_key));

/// Several pods of a VM take what the largest of them does. Without pods nothing is charged for the VM: an empty charge
/// would let each of them go for nothing.
fn largest(charges: impl Iterator<Item = Charge>) -> Option<Charge> {
    charges.reduce(|left, right| left.max(&right))
}

/// What a launcher takes, or with what the container of its guest is to take if that is more.
fn grown(launcher: Launcher<'_>, next: &Rendering<'_>) -> Charge {
    let more = |resource: &Resource| {
        let more = next.amount(resource)?.saturating_sub(launcher.compute.get(resource)?);
        Some(more.max(Amount::ZERO))
    };
    let amounts = launcher.whole.iter().map(|(resource, amount)| {
        (resource.clone(), amount.saturating_add(more(resource).unwrap_or_default()))
    });
    Charge::from_pairs(amounts)
}

/// What the container of the guest takes without what KubeVirt adds to its memory, or is to take if that is more.
///
/// What was added to a launcher is not known where KubeVirt does not say so: the ratio that it is multiplied by may have
/// been another one. But what the VM asks for its guest is, and that is never taken off.
fn guest_part(compute: &Charge, next: &Rendering<'_>, is_growing: bool) -> Charge {
    let amounts = compute.iter().map(|(resource, amount)| {
        let is_memory = matches!(resource, Resource::Memory | Resource::LimitsMemory);
        let rest = if is_memory { amount.saturating_sub(next.overhead).max(Amount::ZERO) } else { *amount };
        let asked = match next.guest_part(resource) {
            Some(asked) if is_growing => asked,
            Some(asked) if is_memory => asked.min(*amount),
            _ => rest,
        };
        (resource.clone(), rest.max(asked))
    });
    Charge::from_pairs(amounts)
}
