//! What the windows of this process did.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::protocol::Ending;

/// Upper bounds in seconds: a window is open for tens of milliseconds, and at most as long as its lock holds.
const BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct How {
    ending: &'static str,
}

/// Counters and histograms. Label values come from fixed sets.
#[derive(Clone, Debug)]
pub struct HeadroomMetrics {
    targets: Family<How, Counter>,
    windows: Counter,
    raises: Counter,
    thefts: Counter,
    left_raised: Counter,
    proof: Histogram,
    open: Histogram,
    raised: Histogram,
}

impl Default for HeadroomMetrics {
    fn default() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        Self {
            targets: Family::default(),
            windows: Counter::default(),
            raises: Counter::default(),
            thefts: Counter::default(),
            left_raised: Counter::default(),
            proof: histogram(),
            open: histogram(),
            raised: histogram(),
        }
    }
}

impl HeadroomMetrics {
    /// Registers `headroom_*`.
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("headroom");
        ours.register("openings", "Targets that needed a window, by how it ended", self.targets.clone());
        ours.register("windows_opened", "Windows created", self.windows.clone());
        ours.register("raises", "Writes that raised a quota", self.raises.clone());
        ours.register(
            "thefts",
            "Quota keys that grew by more than the target while raised",
            self.thefts.clone(),
        );
        ours.register(
            "windows_left",
            "Windows left to expire because a quota could not be restored",
            self.left_raised.clone(),
        );
        let second = Unit::Seconds;
        ours.register_with_unit(
            "proof_duration",
            "From the lock's creation to its proof at every API server",
            second.clone(),
            self.proof.clone(),
        );
        ours.register_with_unit(
            "window_open_duration",
            "From the lock's creation to its deletion",
            second.clone(),
            self.open.clone(),
        );
        ours.register_with_unit(
            "raised_duration",
            "From the first raise to the last restore",
            second,
            self.raised.clone(),
        );
    }

    pub(crate) fn ended(&self, ending: &Ending, thefts: usize) {
        self.targets.get_or_create(&How { ending: ending.word() }).inc();
        self.thefts.inc_by(thefts as u64);
    }

    pub(crate) fn opened(&self) {
        self.windows.inc();
    }

    pub(crate) fn raise(&self) {
        self.raises.inc();
    }

    pub(crate) fn left(&self) {
        self.left_raised.inc();
    }

    pub(crate) fn proven(&self, took: Duration) {
        self.proof.observe(took.as_secs_f64());
    }

    pub(crate) fn closed(&self, took: Duration) {
        self.open.observe(took.as_secs_f64());
    }

    pub(crate) fn restored(&self, took: Duration) {
        self.raised.observe(took.as_secs_f64());
    }
}
