//! Metrics of the gate: what quotas hold, who waits and how long, and whether the sums are right.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use sluice_engine::{Quantity, QuotaId};
use sluice_runtime::clock::ServerClock;

use super::evaluators::NotRead;
use super::other_pods::Fit;
use super::state::State;
use super::stats::Stats;

/// Counters and histograms of the gate; clones share them.
#[derive(Clone, Debug)]
pub struct GateMetrics {
    released: Counter,
    reverted: Counter,
    overwritten: Counter,
    released_by_others: Counter,
    counted_natively: Counter,
    audited: Counter,
    audit_differences: Counter,
    wait: Histogram,
    held: Family<[(&'static str, &'static str); 1], Histogram>,
    rounds: Family<[(&'static str, &'static str); 1], Counter>,
}

/// For what the state of the gate is locked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Plan,
    Watch,
    Settle,
    Admit,
    Explain,
    Audit,
    Scrape,
}

impl Work {
    const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Watch => "watch",
            Self::Settle => "settle",
            Self::Admit => "admit",
            Self::Explain => "explain",
            Self::Audit => "audit",
            Self::Scrape => "scrape",
        }
    }
}

/// Bounds in seconds, close together around 2 ms, which is the longest that anything should take.
const HELD: [f64; 16] = [
    0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.000_75, 0.001, 0.001_5, 0.002, 0.002_5, 0.003, 0.004,
    0.008, 0.016, 0.064, 0.256,
];

impl Default for GateMetrics {
    fn default() -> Self {
        Self {
            released: Counter::default(),
            reverted: Counter::default(),
            overwritten: Counter::default(),
            released_by_others: Counter::default(),
            counted_natively: Counter::default(),
            audited: Counter::default(),
            audit_differences: Counter::default(),
            // 1 ms to 37 hours.
            wait: Histogram::new(exponential_buckets(0.001, 2.0, 28)),
            held: Family::new_with_constructor(|| Histogram::new(HELD)),
            rounds: Family::default(),
        }
    }
}

impl GateMetrics {
    /// Registers everything but what [`QuotaCollector`] reports.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("sluice_releases", "Pods whose gate was removed", self.released.clone());
        let text = "Decisions to release that were taken back because the API server did not let the pod go";
        registry.register("sluice_releases_taken_back", text, self.reverted.clone());
        let text = "Times that another client overwrote the status of a quota";
        registry.register("sluice_status_overwritten", text, self.overwritten.clone());
        let text = "Pods that waited for a quota and whose gate another client removed";
        registry.register("sluice_releases_by_others", text, self.released_by_others.clone());
        let text = "Pods that were charged what Kubernetes counts because evaluators did not work";
        registry.register("sluice_evaluator_fail_open", text, self.counted_natively.clone());
        let text =
            "Times that the pods of a namespace were read to be sent to evaluators, by how they were sent";
        registry.register("sluice_evaluator_rounds", text, self.rounds.clone());
        let text = "Ledgers compared with a recount of the pods";
        registry.register("sluice_ledger_audits", text, self.audited.clone());
        let text = "Audits that found a difference and put it right: always 0, or there is a bug";
        registry.register("sluice_ledger_audit_differences", text, self.audit_differences.clone());
        let text = "Time from seeing a gated pod to seeing it released";
        registry.register_with_unit("sluice_gate_wait", text, Unit::Seconds, self.wait.clone());
        let text = "Time that the state of the gate is locked at a time, by what for";
        registry.register_with_unit("sluice_gate_lock_hold", text, Unit::Seconds, self.held.clone());
    }

    /// The pods of a namespace were read to be sent to evaluators.
    pub(super) fn observe_round(&self, fit: Result<Fit, &NotRead>) {
        let sent = match fit {
            Ok(Fit::Whole) => "whole",
            Ok(Fit::Cut) => "cut",
            Err(_) => "not",
        };
        self.rounds.get_or_create(&[("sent", sent)]).inc();
    }

    pub(super) fn observe_held(&self, work: Work, held: Duration) {
        self.held.get_or_create(&[("by", work.name())]).observe(held.as_secs_f64());
    }

    pub(super) fn observe(&self, stats: Stats) {
        self.released.inc_by(stats.released);
        self.reverted.inc_by(stats.reverted);
        self.overwritten.inc_by(stats.overwritten);
        self.released_by_others.inc_by(stats.released_by_others);
        self.counted_natively.inc_by(stats.counted_natively);
        self.audited.inc_by(stats.audited);
        self.audit_differences.inc_by(stats.audit_differences);
        for wait in stats.waits_s {
            self.wait.observe(wait);
        }
    }
}

/// Reports quotas and waiting pods from the state at the moment of the scrape, so that nothing is kept per
/// series. Names, labels and units of the first two are those of application-aware-quota.
#[derive(Debug)]
pub struct QuotaCollector {
    pub state: Arc<Mutex<State>>,
    /// Says how old a pod is: its creation is a time of this clock.
    pub clock: Arc<ServerClock>,
    /// How long the state is locked is told here, by the next scrape.
    pub metrics: GateMetrics,
}

/// How many quotas are copied before the gate gets its turn.
const SLICE: usize = 64;

/// A quota as it is shown.
struct Row {
    namespace: String,
    name: String,
    created: i64,
    held: usize,
    /// When the oldest pod that waits was created, in seconds since the epoch.
    oldest: Option<i64>,
    /// `hard` and `used` by resource, if they were asked for; none of a quota that cannot be read.
    amounts: [Vec<(String, Quantity)>; 2],
}

impl Row {
    fn of(state: &State, id: QuotaId) -> Option<Self> {
        let quota = state.index().2.get(id)?;
        let name = state.quota_ref(id)?;
        Some(Self {
            namespace: name.namespace().to_string(),
            name: name.name().to_string(),
            created: quota.created,
            held: state.queue().held(id),
            oldest: state.queue().oldest(id).map(|(created, _)| created),
            amounts: Default::default(),
        })
    }

    fn with_amounts(state: &State, id: QuotaId) -> Option<Self> {
        let row = Self::of(state, id)?;
        let Some(target) = state.amounts_of(id) else {
            // As it was when its sums were complete, if they ever were.
            let recorded = &state.index().2.get(id)?.recorded;
            let readable = |(key, amount): (&str, Option<Quantity>)| Some((key.to_owned(), amount?));
            let amounts =
                [&recorded.hard, &recorded.used].map(|list| list.iter().filter_map(readable).collect());
            return Some(Self { amounts, ..row });
        };
        Some(Self { amounts: [target.hard, target.used], ..row })
    }

    fn labels(&self) -> [(&'static str, &str); 2] {
        [("resourcequota", &self.name), ("namespace", &self.namespace)]
    }
}

impl QuotaCollector {
    /// Has the state locked, and measures how long.
    fn locked<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        let state = self.state.lock();
        let begin = Instant::now();
        let seen = read(&state);
        drop(state);
        self.metrics.observe_held(Work::Scrape, begin.elapsed());
        seen
    }

    /// Shows all quotas. The state is locked for some of them at a time, and they are forgotten when they are written: what
    /// is shown of one quota belongs together.
    fn each(
        &self,
        ids: &[QuotaId],
        of: fn(&State, QuotaId) -> Option<Row>,
        mut show: impl FnMut(&Row) -> Result<(), std::fmt::Error>,
    ) -> Result<(), std::fmt::Error> {
        for slice in ids.chunks(SLICE) {
            let rows: Vec<Row> = self.locked(|state| slice.iter().filter_map(|id| of(state, *id)).collect());
            rows.iter().try_for_each(&mut show)?;
        }
        Ok(())
    }
}

impl Collector for QuotaCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (ids, counts, held, unanswered, is_leading) = self.locked(|state| {
            let (pods, _, quotas) = state.index();
            let counts = [
                ("sluice_index_pods", "Pods in memory", pods.len()),
                ("sluice_index_quotas", "Quotas in memory", quotas.len()),
            ];
            let ids = quotas.iter().map(|(id, _)| id).collect::<Vec<_>>();
            (ids, counts, state.held_by_reason(), state.without_answer(), state.is_leading())
        });
        if let Some((waiting, running)) = unanswered {
            let text = "Pods of which evaluators have not said what they take";
            let mut pods = encoder.encode_descriptor(
                "sluice_evaluator_unanswered_pods",
                text,
                None,
                MetricType::Gauge,
            )?;
            for (stage, count) in [("waiting", waiting), ("running", running)] {
                gauge(count).encode(pods.encode_family(&[("pods", stage)])?)?;
            }
        }
        for (name, help, value) in counts {
            gauge(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        // What all replicas see alike is told by one of them: else a sum would count it twice.
        if !is_leading {
            return Ok(());
        }
        let text = "Pods that are held by the gate, by why";
        let mut reasons = encoder.encode_descriptor("sluice_held_pods", text, None, MetricType::Gauge)?;
        for (reason, count) in held {
            gauge(count).encode(reasons.encode_family(&[("reason", reason)])?)?;
        }
        self.encode_pauses(&mut encoder)?;
        self.encode_quotas(&mut encoder, &ids)
    }
}

impl QuotaCollector {
    fn encode_pauses(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (namespaces, end) = self.locked(State::paused);
        let namespaces = i64::try_from(namespaces).unwrap_or(i64::MAX);
        let text = "When the last pause ends, in seconds since the epoch; 0 without one";
        for (name, help, value) in [
            ("sluice_paused", "1 while a pause is in force, in whatever namespace", i64::from(end > 0)),
            ("sluice_paused_namespaces", "Namespaces in which no pod waits for quota", namespaces),
            ("sluice_pause_end_timestamp_seconds", text, end),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }

    fn encode_quotas(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        ids: &[QuotaId],
    ) -> Result<(), std::fmt::Error> {
        let mut usage = encoder.encode_descriptor(
            "kube_application_aware_resourcequota",
            "Limits and usage of each resource of each ApplicationAwareResourceQuota",
            None,
            MetricType::Gauge,
        )?;
        self.each(ids, Row::with_amounts, |row| {
            let [name, namespace] = row.labels();
            for (kind, list) in ["hard", "used"].into_iter().zip(&row.amounts) {
                for (resource, quantity) in list {
                    let labels = [
                        name,
                        namespace,
                        ("resource", resource.as_str()),
                        ("type", kind),
                        ("unit", unit(resource)),
                    ];
                    ConstGauge::new(number(*quantity)).encode(usage.encode_family(&labels)?)?;
                }
            }
            Ok(())
        })?;
        let mut creation = encoder.encode_descriptor(
            "kube_application_aware_resourcequota_creation_timestamp_seconds",
            "When each ApplicationAwareResourceQuota was created, in seconds since the epoch",
            None,
            MetricType::Gauge,
        )?;
        self.each(ids, Row::of, |row| {
            ConstGauge::new(row.created).encode(creation.encode_family(&row.labels())?)
        })?;
        let mut held = encoder.encode_descriptor(
            "sluice_quota_held_pods",
            "Pods that wait for room in each quota",
            None,
            MetricType::Gauge,
        )?;
        self.each(ids, Row::of, |row| gauge(row.held).encode(held.encode_family(&row.labels())?))?;
        let now = self.clock.reckoned().as_second();
        let mut oldest = encoder.encode_descriptor(
            "sluice_quota_oldest_wait_seconds",
            "Age of the oldest pod that waits for room in each quota for which one waits",
            None,
            MetricType::Gauge,
        )?;
        self.each(ids, Row::of, |row| {
            let Some(created) = row.oldest else { return Ok(()) };
            ConstGauge::new(now.saturating_sub(created).max(0)).encode(oldest.encode_family(&row.labels())?)
        })
    }
}

fn gauge(value: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
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
