//! Metrics of the sweep, of blocked migrations and of targets that are left.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::blocked_migrations::{Summaries, Summary};

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
        let mut blocked = Summary::REASONS.map(|reason| (reason, 0_usize));
        let mut forbidden = 0_usize;
        for summary in self.0.lock().values() {
            let of_reason = blocked.iter_mut().filter(|(reason, _)| *reason == summary.reason());
            of_reason.for_each(|(_, count)| *count += summary.blocked);
            forbidden += usize::from(summary.forbidden.is_some());
        }
        let gauge = |value: usize| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let text = "Migrations that a quota rejected and that wait, by reason";
        let mut waiting =
            encoder.encode_descriptor("sluice_blocked_migrations", text, None, MetricType::Gauge)?;
        for (reason, count) in blocked {
            gauge(count).encode(waiting.encode_family(&[("reason", reason)])?)?;
        }
        let (name, text) = (
            "sluice_headroom_forbidden_namespaces",
            "Namespaces with a quota whose status cannot be written",
        );
        gauge(forbidden).encode(encoder.encode_descriptor(name, text, None, MetricType::Gauge)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn migrations_that_wait_are_counted_by_the_reason_of_their_namespace() {
        let of = |blocked, change: fn(&mut Summary)| {
            let mut summary = Summary { blocked, granted: true, ..Summary::default() };
            change(&mut summary);
            summary
        };
        let summaries = Summaries::default();
        let all = [
            of(1, |summary| summary.granted = false),
            of(2, |summary| summary.unproven = true),
            of(4, |summary| summary.forbidden = Some("immutable".into())),
            of(8, |summary| summary.opted_out = true),
            of(16, |summary| summary.not_enough = Some(("a lacks 1".into(), 16))),
            of(32, |_| ()),
            of(64, |summary| summary.granted = false),
        ];
        let named =
            all.into_iter().enumerate().map(|(number, summary)| (format!("n{number}").into(), summary));
        summaries.lock().extend(named);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(BlockedCollector(Arc::clone(&summaries))));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "sluice_blocked_migrations{reason=\"HeadroomNotGranted\"} 65",
            "sluice_blocked_migrations{reason=\"HeadroomNotProven\"} 2",
            "sluice_blocked_migrations{reason=\"HeadroomForbidden\"} 4",
            "sluice_blocked_migrations{reason=\"HeadroomOptedOut\"} 8",
            "sluice_blocked_migrations{reason=\"NotEnoughHeadroom\"} 16",
            "sluice_blocked_migrations{reason=\"PendingEvaluation\"} 32",
            "sluice_headroom_forbidden_namespaces 1",
        ] {
            assert!(text.lines().any(|is| is == line), "{line}: {text}");
        }
        summaries.lock().clear();
        text.clear();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("sluice_blocked_migrations{reason=\"NotEnoughHeadroom\"} 0\n"), "{text}");
    }
}
