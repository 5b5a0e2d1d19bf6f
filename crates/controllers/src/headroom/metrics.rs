//! Metrics of the sweep and of blocked migrations.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::blocked_migrations::{State, Stats};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    cause: &'static str,
}

/// Counters of the sweep; clones share them.
#[derive(Clone, Debug, Default)]
pub struct SweepMetrics {
    swept: Family<Why, Counter>,
}

impl SweepMetrics {
    /// Registers them as `sluice_headroom_*`.
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("sluice_headroom");
        ours.register(
            "swept_quotas",
            "Quotas that were left raised and restored, by cause",
            self.swept.clone(),
        );
    }

    pub(super) fn swept(&self, cause: &'static str) {
        self.swept.get_or_create(&Why { cause }).inc();
    }
}

/// Counters of blocked migrations; clones share them.
#[derive(Clone, Debug, Default)]
pub struct BlockedMetrics {
    rejected: Counter,
    not_enough: Counter,
    nudges: Counter,
    forbidden: Counter,
}

impl BlockedMetrics {
    /// Registers everything but what [`BlockedCollector`] reports.
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("sluice_headroom");
        ours.register("rejected", "Migrations that a quota rejected", self.rejected.clone());
        ours.register("not_enough", "Times that a migration lacked head-room", self.not_enough.clone());
        ours.register("nudges", "Writes that only wake KubeVirt's controller", self.nudges.clone());
        ours.register("forbidden", "Writes of a quota's status that are refused", self.forbidden.clone());
    }

    pub(super) fn observe(&self, stats: Stats) {
        self.rejected.inc_by(stats.rejected);
        self.not_enough.inc_by(stats.not_enough);
        self.nudges.inc_by(stats.nudges);
        self.forbidden.inc_by(stats.forbidden);
    }
}

/// Reports which migrations wait, from the state at the moment of the scrape.
#[derive(Debug)]
pub struct BlockedCollector(pub Arc<Mutex<State>>);

impl Collector for BlockedCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let [blocked, lacking, forbidden] = self.0.lock().counts();
        for (name, help, value) in [
            ("sluice_headroom_blocked_migrations", "Migrations that a quota rejected and that wait", blocked),
            ("sluice_headroom_lacking_migrations", "Migrations that wait for more head-room", lacking),
            (
                "sluice_headroom_forbidden_namespaces",
                "Namespaces with a quota whose status cannot be written",
                forbidden,
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}
