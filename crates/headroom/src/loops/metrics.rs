//! Metrics of the sweep, of blocked migrations and of targets that are left.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::blocked_migrations::Summaries;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    cause: &'static str,
}

/// What the loops of head-room did and what they found; clones share it.
#[derive(Clone, Debug, Default)]
pub struct LoopMetrics {
    swept: Family<Why, Counter>,
    pub(super) rejected: Counter,
    pub(super) nudges: Counter,
    pub(super) forbidden: Counter,
    pub(super) left_targets: Gauge,
    namespaces_above: Gauge,
}

impl LoopMetrics {
    /// Registers everything but what [`BlockedCollector`] reports, as `sluice_headroom_*`.
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("sluice_headroom");
        let text = "Quotas that were left raised and restored, by cause";
        ours.register("swept_quotas", text, self.swept.clone());
        ours.register("rejected", "Migrations that a quota rejected", self.rejected.clone());
        ours.register("nudges", "Writes that only wake KubeVirt's controller", self.nudges.clone());
        ours.register("forbidden", "Writes of a quota's status that are refused", self.forbidden.clone());
        let text = "Targets whose migration is over for a minute and that do not run their machine";
        ours.register("left_targets", text, self.left_targets.clone());
        let text = "Namespaces of HeadroomPolicies that use more than a quota's spec.hard: \
                    what stops there may not start again";
        ours.register("namespaces_above_quotas", text, self.namespaces_above.clone());
    }

    pub(super) fn swept(&self, cause: &'static str) {
        self.swept.get_or_create(&Why { cause }).inc();
    }

    pub(super) fn above(&self, namespaces: usize) {
        self.namespaces_above.set(i64::try_from(namespaces).unwrap_or(i64::MAX));
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
