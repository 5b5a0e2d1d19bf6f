//! Metrics of the sweep and the reactive path.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::state::State;
use super::stats::Stats;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    cause: &'static str,
}

/// Counters; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ReactiveMetrics {
    rejected: Counter,
    not_enough: Counter,
    windows: Counter,
    nudges: Counter,
    sweeps: Family<Why, Counter>,
    restored: Counter,
    forbidden: Counter,
    pub(super) leftovers: Counter,
}

impl ReactiveMetrics {
    /// Registers everything but what [`BlockedCollector`] reports.
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("sluice_headroom");
        ours.register("rejected", "Migrations that a quota rejected", self.rejected.clone());
        ours.register("not_enough", "Times that a migration lacked head-room", self.not_enough.clone());
        ours.register("reactive_windows", "Windows for rejected migrations", self.windows.clone());
        ours.register("nudges", "Writes that only wake KubeVirt's controller", self.nudges.clone());
        ours.register("sweeps", "Namespaces swept, by cause", self.sweeps.clone());
        ours.register("swept_quotas", "Quotas that sweeps restored", self.restored.clone());
        ours.register(
            "forbidden",
            "Writes of a quota's status that somebody forbids",
            self.forbidden.clone(),
        );
        let help = "Locks and records of managed-tenant-quota that were cleaned up";
        ours.register("leftovers_cleaned", help, self.leftovers.clone());
    }

    pub(super) fn observe(&self, stats: Stats) {
        self.rejected.inc_by(stats.rejected);
        self.not_enough.inc_by(stats.not_enough);
        self.windows.inc_by(stats.windows);
        self.nudges.inc_by(stats.nudges);
        for (cause, count) in [("raised", stats.swept_raised), ("expired", stats.swept_expired)] {
            self.sweeps.get_or_create(&Why { cause }).inc_by(count);
        }
        self.restored.inc_by(stats.restored);
        self.forbidden.inc_by(stats.forbidden);
    }
}

/// Reports who waits, from the state at the moment of the scrape.
#[derive(Debug)]
pub struct BlockedCollector(pub Arc<Mutex<State>>);

impl Collector for BlockedCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (blocked, lacking, forbidden, open) = {
            let state = self.0.lock();
            let (blocked, lacking) = state.blocked();
            (blocked, lacking, state.forbidden(), state.open())
        };
        for (name, help, value) in [
            ("sluice_headroom_blocked_migrations", "Migrations that a quota rejected and that wait", blocked),
            ("sluice_headroom_lacking_migrations", "Migrations that wait for more head-room", lacking),
            (
                "sluice_headroom_forbidden_namespaces",
                "Namespaces with a quota whose status somebody forbids to write",
                forbidden,
            ),
            ("sluice_headroom_reactive_windows_open", "Windows open for rejected migrations", open),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}
