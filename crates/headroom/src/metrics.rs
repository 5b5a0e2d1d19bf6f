//! What the sessions of this process did.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds: a quota is raised for tens of milliseconds, and at most as long as its lock holds.
const BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct How {
    ending: &'static str,
}

/// Counters and histograms. Label values come from fixed sets.
#[derive(Clone, Debug)]
pub struct HeadroomMetrics {
    targets: Family<How, Counter>,
    raises: Counter,
    left_raised: Counter,
    settle: Histogram,
    raised: Histogram,
    servers: Gauge,
    proven: Gauge,
    hidden: Gauge,
    impersonates: Gauge,
}

impl Default for HeadroomMetrics {
    fn default() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        Self {
            targets: Family::default(),
            raises: Counter::default(),
            left_raised: Counter::default(),
            settle: histogram(),
            raised: histogram(),
            servers: Gauge::default(),
            proven: Gauge::default(),
            hidden: Gauge::default(),
            impersonates: Gauge::default(),
        }
    }
}

impl HeadroomMetrics {
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("headroom");
        ours.register("targets", "Target pods that were judged, by how it ended", self.targets.clone());
        ours.register("raises", "Writes that raised a quota", self.raises.clone());
        ours.register("left_raised", "Quotas left raised until their lock ended", self.left_raised.clone());
        let text = "From the first raise until every API server knew of it";
        ours.register_with_unit("settle_duration", text, Unit::Seconds, self.settle.clone());
        let text = "From the first raise to the last restore";
        ours.register_with_unit("raised_duration", text, Unit::Seconds, self.raised.clone());
        ours.register("api_servers", "API servers that can be addressed", self.servers.clone());
        let text = "API servers at which both admission policies were in force when last asked";
        ours.register("api_servers_proven", text, self.proven.clone());
        let text = "1 if there are more API servers than addresses, so that nothing is raised";
        ours.register("api_servers_hidden", text, self.hidden.clone());
        let text = "1 if status of quotas is written as kube-controller-manager's quota controller";
        ours.register("status_impersonation", text, self.impersonates.clone());
    }

    pub(crate) fn ended(&self, ending: &'static str) {
        self.targets.get_or_create(&How { ending }).inc();
    }

    pub(crate) fn raise(&self) {
        self.raises.inc();
    }

    pub(crate) fn left(&self) {
        self.left_raised.inc();
    }

    pub(crate) fn settled(&self, took: Duration) {
        self.settle.observe(took.as_secs_f64());
    }

    pub(crate) fn restored(&self, took: Duration) {
        self.raised.observe(took.as_secs_f64());
    }

    pub(crate) fn servers(&self, (all, proven): (usize, usize), hidden: bool, impersonates: bool) {
        self.servers.set(i64::try_from(all).unwrap_or(i64::MAX));
        self.proven.set(i64::try_from(proven).unwrap_or(i64::MAX));
        self.hidden.set(i64::from(hidden));
        self.impersonates.set(i64::from(impersonates));
    }
}
