//! The part of a VirtualMachineInstance that its charge depends on, as it is decoded. Numbers are kept as texts: one that
//! cannot be read must not make its object, and with it the watch, unreadable.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::quantity::{QuantityText, ResourceTexts, resource_list};

/// `spec` of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmiSpecWire {
    /// `amd64`, `arm64` or `s390x`.
    #[serde(default)]
    pub architecture: Option<String>,
    /// The machine.
    #[serde(default)]
    pub domain: DomainWire,
    /// Whether it is alive.
    #[serde(default)]
    pub liveness_probe: Option<ProbeWire>,
    /// Whether it can be used.
    #[serde(default)]
    pub readiness_probe: Option<ProbeWire>,
    /// What it can mount.
    #[serde(default)]
    pub volumes: Option<Vec<VolumeWire>>,
}

/// `spec.domain`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainWire {
    #[serde(default)]
    pub cpu: Option<CpuWire>,
    #[serde(default)]
    pub memory: Option<MemoryWire>,
    /// Threads beside those of its CPUs.
    #[serde(default)]
    pub io_threads: Option<IoThreadsWire>,
    /// How they are made.
    #[serde(default)]
    pub io_threads_policy: Option<String>,
    /// What its pod asks for.
    #[serde(default)]
    pub resources: Option<DomainResourcesWire>,
    #[serde(default)]
    pub devices: Option<DevicesWire>,
    /// Encryption of its memory.
    #[serde(default)]
    pub launch_security: Option<LaunchSecurityWire>,
    /// What it boots by.
    #[serde(default)]
    pub firmware: Option<FirmwareWire>,
}

impl DomainWire {
    /// Whether the state of its TPM or firmware is kept on a volume (KubeVirt's `pkg/storage/backend-storage`,
    /// `IsBackendStorageNeeded`).
    pub(super) fn keeps_state(&self) -> bool {
        let tpm = self.devices.as_ref().and_then(|devices| devices.tpm.as_ref());
        let efi = self.firmware.as_ref().and_then(|it| it.bootloader.as_ref()?.efi.as_ref());
        tpm.is_some_and(|tpm| tpm.persistent == Some(true))
            || efi.is_some_and(|efi| efi.persistent == Some(true))
    }
}

/// `spec.domain.firmware`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FirmwareWire {
    #[serde(default)]
    bootloader: Option<BootloaderWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct BootloaderWire {
    #[serde(default)]
    efi: Option<EfiWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct EfiWire {
    #[serde(default)]
    persistent: Option<bool>,
}

/// `spec.domain.cpu`, and `status.currentCPUTopology`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuWire {
    #[serde(default)]
    pub(super) cores: Option<QuantityText>,
    #[serde(default)]
    pub(super) sockets: Option<QuantityText>,
    #[serde(default)]
    pub(super) threads: Option<QuantityText>,
    #[serde(default)]
    pub(super) dedicated_cpu_placement: Option<bool>,
    #[serde(default)]
    pub(super) isolate_emulator_thread: Option<bool>,
}

/// `spec.domain.memory`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MemoryWire {
    #[serde(default)]
    pub(super) guest: Option<QuantityText>,
}

/// `spec.domain.resources`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainResourcesWire {
    #[serde(default, deserialize_with = "resource_list")]
    pub(super) requests: ResourceTexts,
    #[serde(default, deserialize_with = "resource_list")]
    pub(super) limits: ResourceTexts,
    #[serde(default)]
    pub(super) overcommit_guest_overhead: Option<bool>,
}

/// `spec.domain.ioThreads`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IoThreadsWire {
    #[serde(default)]
    pub(super) supplemental_pool_thread_count: Option<QuantityText>,
}

/// `spec.domain.devices`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevicesWire {
    #[serde(default)]
    pub(super) autoattach_graphics_device: Option<bool>,
    #[serde(default)]
    pub(super) gpus: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    pub(super) host_devices: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    pub(super) interfaces: Option<Vec<InterfaceWire>>,
    #[serde(default)]
    pub(super) tpm: Option<TpmWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct InterfaceWire {
    #[serde(default)]
    pub(super) sriov: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) binding: Option<BindingWire>,
}

/// The plugin that binds an interface.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct BindingWire {
    #[serde(default)]
    pub(super) name: String,
}

/// `spec.domain.devices.tpm`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TpmWire {
    #[serde(default)]
    pub(super) enabled: Option<bool>,
    #[serde(default)]
    persistent: Option<bool>,
}

/// `spec.domain.launchSecurity`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LaunchSecurityWire {
    #[serde(default)]
    pub(super) sev: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) snp: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct ProbeWire {
    #[serde(default)]
    pub(super) exec: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeWire {
    #[serde(default)]
    pub(super) downward_metrics: Option<IgnoredAny>,
    #[serde(default)]
    persistent_volume_claim: Option<PlugWire>,
    #[serde(default)]
    data_volume: Option<PlugWire>,
}

/// A source of a volume that can be plugged in.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PlugWire {
    #[serde(default)]
    hotpluggable: bool,
}

impl VmiSpecWire {
    /// Whether a volume was plugged in.
    pub(super) fn hot_plugs(&self) -> bool {
        let sources = |volume: &VolumeWire| {
            let sources = [&volume.persistent_volume_claim, &volume.data_volume];
            sources.into_iter().flatten().any(|source| source.hotpluggable)
        };
        self.volumes.iter().flatten().any(sources)
    }
}

/// `status.memory`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatusWire {
    #[serde(default)]
    pub(super) guest_requested: Option<QuantityText>,
    #[serde(default)]
    pub(super) memory_overhead: Option<QuantityText>,
}
