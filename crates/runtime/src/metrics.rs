//! Counts and latencies of what we write to the API server.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::retry::classify;

/// Labels of one kind of write and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    resource: &'static str,
    verb: &'static str,
    code: String,
}

/// Labels of one kind of write.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    resource: &'static str,
    verb: &'static str,
}

/// Writes to the API server by `resource`, `verb` and `code` (`ok`, the HTTP code, or `unknown`), with their latency.
///
/// Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub struct ApiWrites {
    total: Family<Outcome, Counter>,
    latency: Family<Kind, Histogram, fn() -> Histogram>,
}

impl Default for ApiWrites {
    fn default() -> Self {
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        Self { total: Family::default(), latency: Family::new_with_constructor(buckets) }
    }
}

impl ApiWrites {
    /// Registers `api_writes_total` and `api_write_duration_seconds`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("api_writes", "Writes to the API server by kind and outcome", self.total.clone());
        let text = "Time from sending a write to its answer";
        registry.register_with_unit("api_write_duration", text, Unit::Seconds, self.latency.clone());
    }

    /// Runs one write and records how it ended. `resource` is the plural name, `verb` the API verb.
    ///
    /// # Errors
    /// That of the write.
    pub async fn record<T>(
        &self,
        resource: &'static str,
        verb: &'static str,
        write: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let start = Instant::now();
        let answer = write.await;
        let code = match &answer {
            Ok(_) => "ok".to_owned(),
            Err(error) => classify(error).code(),
        };
        self.latency.get_or_create(&Kind { resource, verb }).observe(start.elapsed().as_secs_f64());
        self.total.get_or_create(&Outcome { resource, verb, code }).inc();
        answer
    }

    /// Writes of this kind that ended with `code`.
    pub fn count(&self, resource: &'static str, verb: &'static str, code: &str) -> u64 {
        let key = Outcome { resource, verb, code: code.to_owned() };
        self.total.get(&key).map_or(0, |counter| counter.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn writes_are_counted_by_outcome() {
        let writes = ApiWrites::default();
        writes.record("pods", "patch", async { Ok(()) }).await.unwrap();
        let conflict = kube::core::Status::failure("x", "Conflict").with_code(409).boxed();
        let refused =
            writes.record("pods", "patch", async { Err::<(), _>(kube::Error::Api(conflict)) }).await;
        assert!(refused.is_err(), "the answer is handed on");
        assert_eq!(writes.count("pods", "patch", "ok"), 1);
        assert_eq!(writes.count("pods", "patch", "409"), 1);
        assert_eq!(writes.count("pods", "create", "ok"), 0);
        let mut registry = Registry::default();
        writes.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"api_writes_total{resource="pods",verb="patch",code="409"} 1"#), "{text}");
        assert!(text.contains("api_write_duration_seconds_count"), "{text}");
    }
}
