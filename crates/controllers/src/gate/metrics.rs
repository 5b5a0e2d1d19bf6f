//! Metrics of the gate: what quotas hold, who waits and how long, and whether the sums are right.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use sluice_engine::{Quantity, status_target};
use sluice_index::{NamespaceId, QuotaRecord};

use super::state::State;
use super::stats::Stats;

/// Counters and histograms of the gate; clones share them.
#[derive(Clone, Debug)]
pub struct GateMetrics {
    released: Counter,
    reverted: Counter,
    audited: Counter,
    audit_differences: Counter,
    wait: Histogram,
    decision: Histogram,
}

impl Default for GateMetrics {
    fn default() -> Self {
        Self {
            released: Counter::default(),
            reverted: Counter::default(),
            audited: Counter::default(),
            audit_differences: Counter::default(),
            // 1 ms to about 9 hours.
            wait: Histogram::new(exponential_buckets(0.001, 2.0, 25)),
            // 1 µs to about 1 s.
            decision: Histogram::new(exponential_buckets(0.000_001, 2.0, 20)),
        }
    }
}

impl GateMetrics {
    /// Registers everything but what [`QuotaCollector`] reports.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("sluice_releases", "Pods whose gate was removed", self.released.clone());
        registry.register(
            "sluice_releases_taken_back",
            "Decisions to release that were taken back because the API server did not let the pod go",
            self.reverted.clone(),
        );
        registry.register(
            "sluice_ledger_audits",
            "Ledgers compared with a recount of the pods",
            self.audited.clone(),
        );
        registry.register(
            "sluice_ledger_audit_differences",
            "Ledgers that differed from a recount of the pods: always 0, or there is a bug",
            self.audit_differences.clone(),
        );
        registry.register_with_unit(
            "sluice_gate_wait",
            "Time from seeing a gated pod to seeing it released",
            Unit::Seconds,
            self.wait.clone(),
        );
        registry.register_with_unit(
            "sluice_gate_decision",
            "Time that one round of decisions takes",
            Unit::Seconds,
            self.decision.clone(),
        );
    }

    pub(super) fn observe(&self, decision: Duration, stats: Stats) {
        self.decision.observe(decision.as_secs_f64());
        self.released.inc_by(stats.released);
        self.reverted.inc_by(stats.reverted);
        self.audited.inc_by(stats.audited);
        self.audit_differences.inc_by(stats.audit_differences);
        for wait in stats.waits_s {
            self.wait.observe(wait);
        }
    }
}

/// Reports quotas and waiting pods from the state at the moment of the scrape, so that nothing is kept per
/// series. Names, labels and units of the first two are upstream's (`aaq.md` §8).
#[derive(Debug)]
pub struct QuotaCollector(pub Arc<Mutex<State>>);

impl Collector for QuotaCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let state = self.0.lock();
        let (pods, namespaces, quotas) = state.index();
        let name_of = |id: NamespaceId| namespaces.get(id).map_or("", |namespace| &*namespace.name);
        let mut usage = encoder.encode_descriptor(
            "kube_application_aware_resourcequota",
            "Limits and usage of each resource of each ApplicationAwareResourceQuota",
            None,
            MetricType::Gauge,
        )?;
        for (id, quota) in quotas.iter() {
            let (Ok(compiled), Some(ledger)) = (&quota.compiled, state.book().ledger(id)) else { continue };
            let target = status_target(compiled, ledger);
            for (kind, list) in [("hard", &target.hard), ("used", &target.used)] {
                for (resource, quantity) in list {
                    let labels = [
                        ("resourcequota", &*quota.name),
                        ("namespace", name_of(quota.namespace)),
                        ("resource", resource.as_str()),
                        ("type", kind),
                        ("unit", unit(resource)),
                    ];
                    ConstGauge::new(number(*quantity)).encode(usage.encode_family(&labels)?)?;
                }
            }
        }
        let created = |quota: &QuotaRecord| quota.created;
        let mut creation = encoder.encode_descriptor(
            "kube_application_aware_resourcequota_creation_timestamp_seconds",
            "When each ApplicationAwareResourceQuota was created, in seconds since the epoch",
            None,
            MetricType::Gauge,
        )?;
        for (_, quota) in quotas.iter() {
            let labels = [("resourcequota", &*quota.name), ("namespace", name_of(quota.namespace))];
            ConstGauge::new(created(quota)).encode(creation.encode_family(&labels)?)?;
        }
        let mut held = encoder.encode_descriptor(
            "sluice_quota_held_pods",
            "Pods that wait for room in each quota",
            None,
            MetricType::Gauge,
        )?;
        for (id, quota) in quotas.iter() {
            let labels = [("resourcequota", &*quota.name), ("namespace", name_of(quota.namespace))];
            let count = i64::try_from(state.book().held(id)).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(held.encode_family(&labels)?)?;
        }
        for (name, help, value) in [
            ("sluice_held_pods", "Pods that are held by the gate", state.held()),
            ("sluice_index_pods", "Pods in memory", pods.len()),
            ("sluice_index_quotas", "Quotas in memory", quotas.len()),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

fn number(quantity: Quantity) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let nanos = quantity.nanos() as f64;
    nanos / 1e9
}

/// Upstream's label `unit`.
fn unit(resource: &str) -> &'static str {
    match resource {
        "requests.memory/vmi"
        | "memory"
        | "storage"
        | "ephemeral-storage"
        | "requests.memory"
        | "requests.storage"
        | "requests.ephemeral-storage"
        | "limits.memory"
        | "limits.ephemeral-storage" => "bytes",
        _ if resource.starts_with("requests.hugepages-") => "bytes",
        "requests.cpu/vmi" | "limits.cpu" | "requests.cpu" | "cpu" => "core",
        _ => "count",
    }
}
