//! Metrics of the sweep and of blocked migrations.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::blocked_migrations::Summaries;

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
    nudges: Counter,
    forbidden: Counter,
}

impl BlockedMetrics {
    /// Registers everything but what [`BlockedCollector`] reports.
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("sluice_headroom");
        ours.register("rejected", "Migrations that a quota rejected", self.rejected.clone());
        ours.register("nudges", "Writes that only wake KubeVirt's controller", self.nudges.clone());
        ours.register("forbidden", "Writes of a quota's status that are refused", self.forbidden.clone());
    }

    /// So many migrations are rejected that were not before.
    pub(super) fn rejected(&self, rejected: u64) {
        self.rejected.inc_by(rejected);
    }

    pub(super) fn nudge(&self) {
        self.nudges.inc();
    }

    pub(super) fn forbidden(&self) {
        self.forbidden.inc();
    }
}

/// Reports which migrations wait, from the state at the moment of the scrape.
#[derive(Debug)]
pub struct BlockedCollector(pub Summaries);

impl Collector for BlockedCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (mut blocked, mut lacking, mut forbidden) = (0, 0, 0);
        for summary in self.0.lock().values() {
            blocked += summary.blocked;
            lacking += summary.not_enough.as_ref().map_or(0, |(_, count)| *count);
            forbidden += usize::from(summary.forbidden.is_some());
        }
        for (name, help, value) in [
            ("sluice_headroom_blocked_migrations", "Migrations that a quota rejected and that wait", blocked),
            (
                "sluice_headroom_lacking_migrations",
                "Migrations that wait although head-room is granted",
                lacking,
            ),
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
