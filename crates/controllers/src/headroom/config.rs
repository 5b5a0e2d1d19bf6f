//! What can be set about the reactive path and the sweep.

use std::time::Duration;

/// Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct ReactiveConfig {
    /// How many windows for rejected migrations may be open at once in the cluster.
    pub windows: usize,
    /// How long a quota may be raised without a window, and a window outlive its time, before it is swept:
    /// kube-controller-manager and the window's holder are usually quicker.
    pub sweep_after_ms: u64,
    /// After this long a window has to be over, whatever its time says on our clock.
    pub longest_window_ms: u64,
    /// How long KubeVirt's controller gets to notice by itself that there is room.
    pub nudge_after_ms: u64,
    /// How much longer than a window in vain was open a namespace is left alone afterwards.
    pub rest_factor: u64,
    /// The least time between two events that tell of one migration.
    pub tell_spacing_ms: u64,
    /// Waits after failures: the first, and the longest.
    pub retry: (Duration, Duration),
    /// Waits after a refusal that only an administrator can end.
    pub forbidden_retry: (Duration, Duration),
}

impl Default for ReactiveConfig {
    fn default() -> Self {
        Self {
            windows: 8,
            sweep_after_ms: 1_000,
            longest_window_ms: 8_000,
            nudge_after_ms: 1_000,
            rest_factor: 10,
            tell_spacing_ms: 5_000,
            retry: (Duration::from_secs(1), Duration::from_secs(300)),
            forbidden_retry: (Duration::from_secs(60), Duration::from_secs(900)),
        }
    }
}
