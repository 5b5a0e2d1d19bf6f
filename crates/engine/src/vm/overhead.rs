//! The memory that a launcher pod asks for beside that of its guest, as KubeVirt estimates it.

use std::collections::BTreeMap;

use super::kubevirt_versions::{
    ANY_PROBE, ARM64, DOWNWARD_METRICS, ENCRYPTED, GUARANTEED, PAGE_TABLES, PER_CPU, PROBE, TPM, VFIO,
    additions,
};
use super::{Side, VmError, VmFacts};
use crate::charge::Amount;
use crate::quantity::NANOS_PER_UNIT;

/// What the launcher of a VM depends on beside the size of the guest, mostly what KubeVirt adds memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Feature {
    /// `spec.domain.devices.autoattachGraphicsDevice` is absent or true.
    Graphics = 1,
    /// `spec.architecture` is `arm64`.
    Arm64 = 2,
    /// There are host devices or GPUs, or an interface is bound by SR-IOV.
    Vfio = 4,
    /// A volume is one of `downwardMetrics`.
    DownwardMetrics = 8,
    /// `spec.domain.launchSecurity` is `sev` or `snp`.
    EncryptedMemory = 16,
    /// `spec.domain.devices.tpm` is there and not disabled.
    Tpm = 32,
    /// `spec.domain.cpu.dedicatedCpuPlacement`.
    DedicatedCpus = 64,
    /// `spec.domain.cpu.isolateEmulatorThread`.
    IsolatedEmulator = 128,
    /// `spec.domain.resources.overcommitGuestOverhead`: nothing is requested for what is added.
    OvercommittedOverhead = 256,
    /// The annotation `alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity` is there: an isolated emulator has a second CPU
    /// where the others are even. KubeVirt copies it from its own configuration to each new VM.
    EvenEmulator = 512,
    /// `spec.domain.ioThreadsPolicy` is `supplementalPool`.
    SupplementalPool = 1024,
    /// [`Self::Vfio`] is there because of interfaces alone. They can be plugged in while the machine runs, as no other such
    /// device can (`pkg/network/controllers/vm.go`).
    VfioOfInterfaces = 2048,
}

/// A set of [`Feature`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

impl Features {
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & feature as u16 != 0
    }

    /// The set with this one too.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | feature as u16)
    }

    const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(feature as u16))
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        features.into_iter().fold(Self::default(), Self::with)
    }
}

/// What the overhead of a VM depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverheadFacts {
    pub features: Features,
    /// How many of `livenessProbe` and `readinessProbe` run a command.
    pub exec_probes: u8,
    /// Names of the binding plugins of its interfaces, each once.
    pub bindings: Box<[Box<str>]>,
    /// `status.memory.memoryOverhead`: what KubeVirt has added, where it says so.
    pub reported: Option<Amount>,
}

/// `additionalGuestMemoryOverheadRatio`, if it is a sensible number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverheadRatio(f64);

impl OverheadRatio {
    /// Reads it. KubeVirt goes without a ratio that it cannot read; so it is here with one outside 0 to 1000.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|ratio| (0.0..=1000.0).contains(ratio)).map(Self)
    }

    /// Nano-units that it adds to so many.
    // The arithmetic of KubeVirt's `multiplyMemory`, floating point included.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    fn addition(self, nanos: i128) -> i128 {
        let thousands = ceil_div(nanos, KILO);
        ((thousands as f64 * (self.0 - 1.0)) as i128).saturating_mul(KILO)
    }
}

/// Nano-units of a thousand.
const KILO: i128 = 1000 * NANOS_PER_UNIT;

/// What is known of an installation of KubeVirt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeVirtFacts {
    /// The minor version of KubeVirt 1, if it is known.
    pub minor: Option<u32>,
    /// `spec.configuration.additionalGuestMemoryOverheadRatio`.
    pub ratio: Option<OverheadRatio>,
    /// `spec.configuration.network.binding`: by name, the memory that a plugin adds.
    pub bindings: BTreeMap<Box<str>, Amount>,
    /// `spec.configuration.developerConfiguration.cpuAllocationRatio`.
    pub cpu_allocation_ratio: Option<u32>,
    /// `spec.configuration.developerConfiguration.memoryOvercommit`, in hundredths.
    pub memory_overcommit: Option<u32>,
}

/// The memory beside the guest in the launcher that runs it, as KubeVirt says or as it is estimated.
///
/// # Errors
/// See [`VmError`].
pub fn memory_overhead(vm: &VmFacts, kubevirt: &KubeVirtFacts) -> Result<Amount, VmError> {
    vm.overhead.reported.map_or_else(|| estimated_overhead(vm, kubevirt), Ok)
}

/// The most memory beside the guest that a launcher of the VM has now or will have: what KubeVirt says of the present one,
/// or what is estimated for the next, whichever is more.
///
/// # Errors
/// See [`VmError`].
pub fn largest_overhead(vm: &VmFacts, kubevirt: &KubeVirtFacts) -> Result<Amount, VmError> {
    Ok(estimated_overhead(vm, kubevirt)?.max(vm.overhead.reported.unwrap_or_default()))
}

/// So much of the overhead is there for interfaces that can be plugged in.
///
/// # Errors
/// See [`VmError`].
pub fn overhead_of_interfaces(vm: &VmFacts, kubevirt: &KubeVirtFacts) -> Result<Amount, VmError> {
    let features = vm.overhead.features;
    if !features.has(Feature::VfioOfInterfaces) {
        return Ok(Amount::ZERO);
    }
    let without = estimate(vm, features.without(Feature::Vfio), kubevirt)?;
    Ok(estimated_overhead(vm, kubevirt)?.saturating_sub(without))
}

/// The memory beside the guest in a launcher for the VM as it is specified.
pub(super) fn estimated_overhead(vm: &VmFacts, kubevirt: &KubeVirtFacts) -> Result<Amount, VmError> {
    estimate(vm, vm.overhead.features, kubevirt)
}

fn estimate(vm: &VmFacts, features: Features, kubevirt: &KubeVirtFacts) -> Result<Amount, VmError> {
    let has = |feature, bytes| if features.has(feature) { bytes } else { 0 };
    let additions = additions(kubevirt.minor);
    let probes = i128::from(vm.overhead.exec_probes);
    let guaranteed = match features.has(Feature::DedicatedCpus) || wants_guaranteed(vm) {
        true => GUARANTEED,
        false => 0,
    };
    let bytes = page_tables(vm)
        + additions.processes
        + i128::from(vcpus(vm)?) * PER_CPU
        + has(Feature::Graphics, additions.graphics)
        + has(Feature::Arm64, ARM64)
        + has(Feature::Vfio, VFIO)
        + has(Feature::DownwardMetrics, DOWNWARD_METRICS)
        + has(Feature::EncryptedMemory, ENCRYPTED)
        + has(Feature::Tpm, TPM)
        + probes * PROBE
        + if probes > 0 { ANY_PROBE } else { 0 };
    let (before, after) = if additions.guaranteed_is_multiplied { (guaranteed, 0) } else { (0, guaranteed) };
    let nanos = (bytes + before) * NANOS_PER_UNIT;
    let more = kubevirt.ratio.map_or(0, |ratio| ratio.addition(nanos));
    let own = Amount::from_nanos(nanos.saturating_add(more).saturating_add(after * NANOS_PER_UNIT));
    let plugins = vm.overhead.bindings.iter().filter_map(|name| kubevirt.bindings.get(name));
    Ok(plugins.fold(own, |sum, plugin| sum.saturating_add(*plugin)).limited())
}

fn page_tables(vm: &VmFacts) -> i128 {
    let memory = vm.requests.memory.unwrap_or_default().limited().nanos().max(0);
    ceil_div(memory, KILO) * 1000 / PAGE_TABLES
}

/// The CPUs that memory is added for: without a topology the limit counts, not the request.
fn vcpus(vm: &VmFacts) -> Result<u32, VmError> {
    let vcpus = match vm.topology {
        Some(topology) => topology.vcpus().ok_or(VmError::TooManyCpus { side: Side::Spec, topology })?,
        None => {
            let cpu = vm.limits.cpu.or(vm.requests.cpu).unwrap_or_default().nanos().max(0);
            u32::try_from(ceil_div(cpu, NANOS_PER_UNIT))
                .map_err(|_| VmError::OutOfRange { resource: "cpu" })?
        }
    };
    Ok(vcpus.max(1))
}

// KubeVirt 1.7: staging/src/kubevirt.io/api/core/v1/types.go, WantsToHaveQOSGuaranteed.
fn wants_guaranteed(vm: &VmFacts) -> bool {
    let (requests, limits) = (vm.requests, vm.limits);
    let zero = |amount: Option<Amount>| amount.unwrap_or_default();
    let memory = match zero(requests.memory).is_zero() {
        true => !zero(limits.memory).is_zero(),
        false => zero(requests.memory) == zero(limits.memory),
    };
    memory && !zero(requests.cpu).is_zero() && zero(requests.cpu) == zero(limits.cpu)
}

/// For numbers that are not negative.
const fn ceil_div(dividend: i128, divisor: i128) -> i128 {
    dividend / divisor + (dividend % divisor != 0) as i128
}
