//! What KubeVirt adds to the memory of a guest, and what of that differs between its versions.
//!
//! Source: kubevirt/kubevirt, `pkg/virt-controller/services/renderresources.go` (`GetMemoryOverhead`, `multiplyMemory`) and
//! `template.go` (constants, `addProbeOverheads`), v1.3.0 to v1.7.0. 1.8 and 1.9 have the numbers of 1.7.

/// Bytes of a mebibyte.
const MIB: i128 = 1 << 20;

/// The version that stands for one that is not known.
const NEWEST: u32 = 7;

/// Bytes that are added, in one version of KubeVirt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Additions {
    /// Processes in the pod beside the guest: launcher and its monitor, virtlogd, virtqemud, qemu itself;
    /// and one I/O thread.
    pub processes: i128,
    /// Video memory (`autoattachGraphicsDevice`).
    pub graphics: i128,
    /// Whether what is added for dedicated CPUs and guaranteed memory is multiplied by the configured ratio too.
    pub guaranteed_is_multiplied: bool,
}

/// What version 1.`minor` adds.
pub(super) fn additions(minor: Option<u32>) -> Additions {
    let minor = minor.unwrap_or(NEWEST);
    let (monitor, launcher, qemu, io_thread) = (25, 100, 30, 8);
    // virtlogd and virtqemud: since v1.5.
    let (virtlogd, virtqemud) = if minor >= 5 { (25, 40) } else { (20, 35) };
    Additions {
        processes: (monitor + launcher + virtlogd + virtqemud + qemu + io_thread) * MIB,
        // Since v1.6.
        graphics: if minor >= 6 { 32 } else { 16 } * MIB,
        // Since v1.6.
        guaranteed_is_multiplied: minor >= 6,
    }
}

/// Whether a supplemental pool of I/O threads has CPUs of its own: since v1.6 (`getIOThreadsCount`).
pub(super) fn io_threads_take_cpus(minor: Option<u32>) -> bool {
    minor.unwrap_or(NEWEST) >= 6
}

/// For each CPU.
pub(super) const PER_CPU: i128 = 8 * MIB;
/// Firmware of arm64: two flash images of 64Mi.
pub(super) const ARM64: i128 = 128 * MIB;
/// Address space of devices that are passed through.
pub(super) const VFIO: i128 = 1024 * MIB;
/// A volume of metrics.
pub(super) const DOWNWARD_METRICS: i128 = MIB;
/// Encrypted memory (SEV, SEV-ES, SEV-SNP); nothing is added for TDX.
pub(super) const ENCRYPTED: i128 = 256 * MIB;
/// The process of a TPM.
pub(super) const TPM: i128 = 53 * MIB;
/// Dedicated CPUs, or a guest whose requests are its limits.
pub(super) const GUARANTEED: i128 = 100 * MIB;
/// For each probe that runs a command, and once if there is any.
pub(super) const PROBE: i128 = 10 * MIB;
/// See [`PROBE`].
pub(super) const ANY_PROBE: i128 = 100 * MIB;
/// Page tables: one byte for so many of `spec.domain.resources.requests.memory`, which is rounded up to thousands first.
pub(super) const PAGE_TABLES: i128 = 512;
