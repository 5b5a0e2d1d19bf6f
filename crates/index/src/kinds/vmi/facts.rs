//! From a decoded VirtualMachineInstance to what its charge depends on.

use sluice_api::names;
use sluice_engine::quantity::QuantityError;
use sluice_engine::vm::{CpuAndMemory, CpuTopology, Feature, OverheadFacts, VmFacts};
use sluice_engine::{Amount, Quantity};

use super::wire::{CpuWire, DevicesWire, DomainWire, VmiSpecWire};
use super::{VmiStatusWire, VmiWire};
use crate::quantity::{QuantityText, ResourceTexts};

/// A number of a VirtualMachineInstance that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmiError {
    /// It is no quantity.
    Quantity {
        /// Where it is.
        field: &'static str,
        /// Why.
        error: QuantityError,
    },
    /// It is no number of CPUs.
    Count {
        /// Where it is.
        field: &'static str,
    },
}

impl std::fmt::Display for VmiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quantity { field, error } => write!(f, "{field}: {error}"),
            Self::Count { field } => {
                write!(f, "{field}: counting CPUs: expected a whole number from 0 to 4294967295")
            }
        }
    }
}

impl std::error::Error for VmiError {}

/// As many different plugins of a VM are kept, and so long names: KubeVirt takes fewer interfaces, and no key of its
/// configuration that is longer has a plugin.
const MOST_BINDINGS: usize = 32;
const LONGEST_BINDING: usize = 253;

impl VmiSpecWire {
    /// What the charge of such a machine depends on as long as it has no status.
    ///
    /// # Errors
    /// When a number cannot be read.
    pub fn facts(&self) -> Result<VmFacts, VmiError> {
        facts_of(self, &VmiStatusWire::default())
    }
}

/// What the charge depends on.
pub(super) fn facts(wire: &VmiWire) -> Result<VmFacts, VmiError> {
    let mut facts = facts_of(&wire.spec, &wire.status)?;
    let annotations = wire.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(names::EVEN_EMULATOR_ANNOTATION)) {
        facts.overhead.features = facts.overhead.features.with(Feature::EvenEmulator);
    }
    Ok(facts)
}

fn facts_of(spec: &VmiSpecWire, status: &VmiStatusWire) -> Result<VmFacts, VmiError> {
    let domain = &spec.domain;
    let none = ResourceTexts::default();
    let (requests, limits) = match &domain.resources {
        Some(resources) => (&resources.requests, &resources.limits),
        None => (&none, &none),
    };
    let memory = status.memory.as_ref();
    let in_status = |text: Option<&QuantityText>, field| amount(text, field);
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    Ok(VmFacts {
        requests: cpu_and_memory(
            requests,
            "spec.domain.resources.requests[cpu]",
            "spec.domain.resources.requests[memory]",
        )?,
        limits: cpu_and_memory(
            limits,
            "spec.domain.resources.limits[cpu]",
            "spec.domain.resources.limits[memory]",
        )?,
        guest_memory: amount(guest, "spec.domain.memory.guest")?,
        topology: topology(
            domain.cpu.as_ref(),
            ["spec.domain.cpu.cores", "spec.domain.cpu.sockets", "spec.domain.cpu.threads"],
        )?,
        io_threads: count(
            domain.io_threads.as_ref().and_then(|it| it.supplemental_pool_thread_count.as_ref()),
            "spec.domain.ioThreads.supplementalPoolThreadCount",
        )?,
        requested_memory: in_status(
            memory.and_then(|memory| memory.guest_requested.as_ref()),
            "status.memory.guestRequested",
        )?,
        current_topology: topology(
            status.current_cpu_topology.as_ref(),
            [
                "status.currentCPUTopology.cores",
                "status.currentCPUTopology.sockets",
                "status.currentCPUTopology.threads",
            ],
        )?,
        overhead: OverheadFacts {
            reported: in_status(
                memory.and_then(|memory| memory.memory_overhead.as_ref()),
                "status.memory.memoryOverhead",
            )?,
            ..overhead(spec)
        },
    })
}

fn amount(text: Option<&QuantityText>, field: &'static str) -> Result<Option<Amount>, VmiError> {
    let read = |text: &QuantityText| Quantity::parse_json_text(&text.0).map(Amount::from);
    text.map(read).transpose().map_err(|error| VmiError::Quantity { field, error })
}

fn cpu_and_memory(
    list: &ResourceTexts,
    cpu: &'static str,
    memory: &'static str,
) -> Result<CpuAndMemory, VmiError> {
    let find = |name: &str| list.iter().rev().find(|(key, _)| key == name).map(|(_, text)| text);
    Ok(CpuAndMemory { cpu: amount(find("cpu"), cpu)?, memory: amount(find("memory"), memory)? })
}

fn topology(wire: Option<&CpuWire>, fields: [&'static str; 3]) -> Result<Option<CpuTopology>, VmiError> {
    let Some(wire) = wire else { return Ok(None) };
    let [cores, sockets, threads] = fields;
    Ok(Some(CpuTopology {
        cores: count(wire.cores.as_ref(), cores)?,
        sockets: count(wire.sockets.as_ref(), sockets)?,
        threads: count(wire.threads.as_ref(), threads)?,
    }))
}

fn count(text: Option<&QuantityText>, field: &'static str) -> Result<u32, VmiError> {
    text.map_or(Ok(0), |text| text.0.parse().map_err(|_| VmiError::Count { field }))
}

fn overhead(spec: &VmiSpecWire) -> OverheadFacts {
    let devices = spec.domain.devices.as_ref();
    let exec = |probe: &Option<_>| u8::from(matches!(probe, Some(super::wire::ProbeWire { exec: Some(_) })));
    OverheadFacts {
        features: features(spec),
        exec_probes: exec(&spec.liveness_probe) + exec(&spec.readiness_probe),
        bindings: bindings(devices),
        reported: None,
    }
}

fn features(spec: &VmiSpecWire) -> sluice_engine::vm::Features {
    let DomainWire { cpu, devices, launch_security, resources, .. } = &spec.domain;
    let none = DevicesWire::default();
    let devices = devices.as_ref().unwrap_or(&none);
    let is_used = |list: &Option<Vec<_>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let is_device = devices.interfaces.iter().flatten().any(|it| it.sriov.is_some());
    let has_others = is_used(&devices.host_devices) || is_used(&devices.gpus);
    let mut volumes = spec.volumes.iter().flatten();
    let security = launch_security.as_ref();
    let found = [
        (Feature::Graphics, devices.autoattach_graphics_device != Some(false)),
        (Feature::Arm64, spec.architecture.as_deref() == Some("arm64")),
        (Feature::Vfio, has_others || is_device),
        (Feature::VfioOfInterfaces, is_device && !has_others),
        (Feature::DownwardMetrics, volumes.any(|volume| volume.downward_metrics.is_some())),
        (Feature::EncryptedMemory, security.is_some_and(|it| it.sev.is_some() || it.snp.is_some())),
        (Feature::Tpm, devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false))),
        (Feature::DedicatedCpus, cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))),
        (
            Feature::IsolatedEmulator,
            cpu.as_ref().is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true)),
        ),
        (Feature::SupplementalPool, spec.domain.io_threads_policy.as_deref() == Some("supplementalPool")),
        (
            Feature::OvercommittedOverhead,
            resources.as_ref().is_some_and(|resources| resources.overcommit_guest_overhead == Some(true)),
        ),
    ];
    found.into_iter().filter(|(_, is_there)| *is_there).map(|(feature, _)| feature).collect()
}

fn bindings(devices: Option<&DevicesWire>) -> Box<[Box<str>]> {
    let interfaces = devices.and_then(|devices| devices.interfaces.as_ref()).into_iter().flatten();
    let names = interfaces.filter_map(|interface| Some(&*interface.binding.as_ref()?.name));
    let mut names: Vec<&str> = names.filter(|name| name.len() <= LONGEST_BINDING).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST_BINDINGS);
    names.into_iter().map(Into::into).collect()
}
