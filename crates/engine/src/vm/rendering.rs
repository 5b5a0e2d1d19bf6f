//! What the container of a guest takes in a launcher that KubeVirt makes for a VM as it is specified.
//!
//! Source: kubevirt/kubevirt, `pkg/virt-controller/services/renderresources.go` (`WithMemoryRequests`, `WithCPUPinning`,
//! `WithoutDedicatedCPU`, `WithHugePages`, `WithMemoryOverhead`, `WithAutoMemoryLimits`), applied in the order of
//! `template.go`, `VMIResourcePredicates`; v1.3.0 to v1.8.0. What the VM's own requests and limits say replaces what is
//! computed (`ResourceRenderer.Requests`), and hot-plug raises these by what it plugs in
//! (`pkg/virt-controller/watch/vm/vm.go`, `VMICPUsPatch`, `handleMemoryHotplugRequest`).

use super::kubevirt_versions::io_threads_take_cpus;
use super::{Feature, KubeVirtFacts, VmFacts};
use crate::charge::{Amount, Charge};
use crate::quantity::NANOS_PER_UNIT;
use crate::resource::{HUGEPAGES, Resource};

/// `developerConfiguration.cpuAllocationRatio` where KubeVirt's configuration has none.
const CPU_ALLOCATION_RATIO: u32 = 10;
/// `developerConfiguration.memoryOvercommit` where KubeVirt's configuration has none.
const MEMORY_OVERCOMMIT: u32 = 100;

/// A container of a guest that KubeVirt would make now.
///
/// It depends on the VM and on KubeVirt alone, not on the size that an existing launcher was made for: a target of a
/// migration that was made for the new size of a VM is not made larger once more. Of an existing launcher is taken what does
/// not depend on the size: whether there are huge pages, and how limits come about that the VM does not state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rendering<'v> {
    pub vm: &'v VmFacts,
    pub kubevirt: &'v KubeVirtFacts,
    /// The memory beside the guest.
    pub overhead: Amount,
    /// What the container takes in an existing launcher of the VM.
    pub made: &'v Charge,
}

impl Rendering<'_> {
    /// What the container takes of a resource; `None` where that does not depend on the size of the VM, or is not known.
    pub fn amount(&self, resource: &Resource) -> Option<Amount> {
        match resource {
            Resource::Cpu => self.cpu_request(),
            Resource::LimitsCpu => self.cpu_limit(),
            Resource::Memory => self.memory_request(),
            Resource::LimitsMemory => self.memory_limit(),
            Resource::Named(name) if name.starts_with(HUGEPAGES) => {
                let stated = self.stated_memory()?;
                Some(self.vm.guest_memory.map_or(stated, |guest| stated.min(guest)))
            }
            _ => None,
        }
    }

    /// What of that is the guest's.
    pub fn guest_part(&self, resource: &Resource) -> Option<Amount> {
        match resource {
            Resource::Memory => self.guest_memory(self.stated_memory()?),
            Resource::LimitsMemory => Some(self.memory_limit()?.saturating_sub(self.overhead)),
            _ => self.amount(resource),
        }
    }

    fn cpu_request(&self) -> Option<Amount> {
        if self.is_pinned() {
            return self.cpus(self.vm.topology?.vcpus()?).map(whole);
        }
        if let Some(stated) = self.vm.requests.cpu {
            return Some(stated);
        }
        let cpus = self.cpus(self.vm.topology.map_or(Some(1), super::CpuTopology::vcpus)?)?;
        let ratio = self.kubevirt.cpu_allocation_ratio.unwrap_or(CPU_ALLOCATION_RATIO);
        // KubeVirt divides in floating point, which for up to 512 CPUs is not seen in the nano-units of a quantity.
        (ratio > 0).then(|| Amount::from_nanos(ceil_div(whole(cpus).nanos(), i128::from(ratio))))
    }

    fn cpu_limit(&self) -> Option<Amount> {
        let cpus = self.cpus(self.vm.topology?.vcpus()?).map(whole);
        if self.is_pinned() {
            return cpus;
        }
        if let Some(stated) = self.vm.limits.cpu {
            return Some(stated);
        }
        // KubeVirt limits the container to the CPUs of the guest where a namespace limits CPUs. The default of a LimitRange
        // is another number and stays.
        let current = self.vm.current_topology.and_then(|topology| self.cpus(topology.vcpus()?));
        let made = self.made.get(&Resource::LimitsCpu)?;
        (Some(made) == cpus || Some(made) == current.map(whole)).then_some(cpus?)
    }

    fn memory_request(&self) -> Option<Amount> {
        let guest = self.guest_memory(self.stated_memory()?)?;
        let has_overhead = !self.vm.overhead.features.has(Feature::OvercommittedOverhead);
        Some(if has_overhead { guest.saturating_add(self.overhead) } else { guest })
    }

    fn memory_limit(&self) -> Option<Amount> {
        let limit = self.vm.limits.memory.filter(|amount| !amount.is_zero());
        let limit = if self.is_pinned() { self.stated_memory() } else { limit };
        if let Some(limit) = limit {
            return Some(self.guest_memory(limit)?.saturating_add(self.overhead));
        }
        // KubeVirt makes the limit a multiple of the request, of a factor that the namespace may have a label for.
        let made = |resource| Some(ceil_div(self.made.get(resource)?.nanos(), NANOS_PER_UNIT));
        let (request, limit) = (made(&Resource::Memory)?, made(&Resource::LimitsMemory)?);
        let bytes = ceil_div(self.memory_request()?.nanos(), NANOS_PER_UNIT).checked_mul(limit)?;
        Some(Amount::from_nanos(bytes.checked_div(request)?.checked_mul(NANOS_PER_UNIT)?).limited())
    }

    /// The memory that the VM asks for.
    fn stated_memory(&self) -> Option<Amount> {
        let stated = [self.vm.requests.memory, self.vm.limits.memory];
        if let Some(stated) = stated.into_iter().flatten().find(|amount| !amount.is_zero()) {
            return Some(stated);
        }
        let guest = self.vm.guest_memory?;
        let overcommit = self.kubevirt.memory_overcommit.unwrap_or(MEMORY_OVERCOMMIT);
        if overcommit == MEMORY_OVERCOMMIT {
            return Some(guest);
        }
        let hundredths = ceil_div(guest.nanos(), NANOS_PER_UNIT).checked_mul(100)?;
        Some(Amount::from_nanos(hundredths.checked_div(i128::from(overcommit))?.checked_mul(NANOS_PER_UNIT)?))
    }

    /// What of an amount of memory is memory of the container: with huge pages what the guest does not have.
    fn guest_memory(&self, stated: Amount) -> Option<Amount> {
        let mut resources = self.made.iter().map(|(resource, _)| resource);
        let is_page =
            |resource: &Resource| matches!(resource, Resource::Named(name) if name.starts_with(HUGEPAGES));
        if !resources.any(is_page) {
            return Some(stated);
        }
        let guest = self.vm.guest_memory.unwrap_or(stated);
        Some(stated.saturating_sub(guest).max(Amount::ZERO))
    }

    fn is_pinned(&self) -> bool {
        self.vm.overhead.features.has(Feature::DedicatedCpus)
    }

    /// The CPUs of a guest and of what runs beside it; none of a guest without CPUs.
    fn cpus(&self, vcpus: u32) -> Option<u32> {
        let threads = if io_threads_take_cpus(self.kubevirt.minor) { self.vm.io_threads } else { 0 };
        let cpus = vcpus.checked_add(threads).filter(|_| vcpus > 0)?;
        cpus.checked_add(self.emulator_cpus(cpus))
    }

    /// The CPUs of an isolated emulator thread (`WithCPUPinning`). Whether the others are even, KubeVirt asks of a number in
    /// which a supplemental pool of I/O threads is counted even if it is among them
    /// already (`additionalCPUs` in `template.go`).
    fn emulator_cpus(&self, cpus: u32) -> u32 {
        let features = self.vm.overhead.features;
        let pool = if features.has(Feature::SupplementalPool) { self.vm.io_threads } else { 0 };
        let is_even = cpus % 2 == pool % 2;
        match self.is_pinned() && features.has(Feature::IsolatedEmulator) {
            true if features.has(Feature::EvenEmulator) && is_even => 2,
            true => 1,
            false => 0,
        }
    }
}

fn whole(cpus: u32) -> Amount {
    Amount::from_nanos(i128::from(cpus) * NANOS_PER_UNIT)
}

/// For a divisor above zero.
const fn ceil_div(dividend: i128, divisor: i128) -> i128 {
    dividend.div_euclid(divisor) + (dividend.rem_euclid(divisor) != 0) as i128
}
