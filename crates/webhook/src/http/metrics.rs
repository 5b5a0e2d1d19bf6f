//! What the webhook counts.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds in seconds: a verdict takes microseconds, reading its body may take longer.
const BUCKETS: [f64; 14] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 1.0,
    10.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    endpoint: &'static str,
    allowed: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabel {
    endpoint: &'static str,
}

/// Counters and histograms of the endpoints. Label values come from fixed sets, never from requests.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    requests: Family<RequestLabels, Counter>,
    latency: Family<EndpointLabel, Histogram, fn() -> Histogram>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self { requests: Family::default(), latency: Family::new_with_constructor(histogram) }
    }
}

impl WebhookMetrics {
    /// New metrics, registered as `sluice_webhook_*`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let text = "Admission requests by endpoint, verdict and code";
        registry.register("sluice_webhook_requests", text, metrics.requests.clone());
        let text = "Time from the request's headers to its answer, by endpoint";
        registry.register("sluice_webhook_request_duration_seconds", text, metrics.latency.clone());
        metrics
    }

    /// Counts one answer.
    pub(crate) fn observe(&self, endpoint: &'static str, allowed: bool, code: u16, took: Duration) {
        let allowed = if allowed { "true" } else { "false" };
        self.requests.get_or_create(&RequestLabels { endpoint, allowed, code }).inc();
        self.latency.get_or_create(&EndpointLabel { endpoint }).observe(took.as_secs_f64());
    }
}
