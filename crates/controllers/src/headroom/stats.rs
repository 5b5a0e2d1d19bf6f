//! What happened, for the metrics.

/// Counts since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Migrations that became rejected by a quota.
    pub rejected: u64,
    /// Migrations that were told that head-room is not enough.
    pub not_enough: u64,
    /// Windows for rejected migrations that were tried.
    pub windows: u64,
    /// Writes that only wake KubeVirt's controller.
    pub nudges: u64,
    /// Sweeps because a quota was raised without a window.
    pub swept_raised: u64,
    /// Sweeps because a window was expired.
    pub swept_expired: u64,
    /// Quotas that sweeps restored.
    pub restored: u64,
    /// Writes that somebody forbids.
    pub forbidden: u64,
}
