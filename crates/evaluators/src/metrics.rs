//! Counts and times of evaluators.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::times::{Times, millis};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    evaluator: Arc<str>,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evaluator {
    evaluator: Arc<str>,
}

/// Metrics of evaluators. Cheap to clone; clones count together.
///
/// The client counts questions and breakers. The gate counts pods without an answer.
#[derive(Debug, Clone)]
pub struct EvaluatorMetrics {
    requests: Family<Result, Counter>,
    seconds: Family<Evaluator, Histogram, fn() -> Histogram>,
    breaker_open: Family<Evaluator, Gauge>,
    inconsistent: Family<Evaluator, Counter>,
    /// What the histogram does not give back.
    times: Arc<Mutex<BTreeMap<Arc<str>, Times>>>,
}

impl Default for EvaluatorMetrics {
    fn default() -> Self {
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0002, 2.0, 14));
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            breaker_open: Family::default(),
            inconsistent: Family::default(),
            times: Arc::default(),
        }
    }
}

impl EvaluatorMetrics {
    /// Registers `evaluator_requests_total`, `evaluator_request_seconds`, `evaluator_breaker_open` and
    /// `evaluator_inconsistent_answers_total`.
    pub fn register(&self, registry: &mut Registry) {
        let text = "Questions to an evaluator by what came of them";
        registry.register("evaluator_requests", text, self.requests.clone());
        let text = "Time from asking an evaluator to its answer, or to the end of waiting for it";
        registry.register_with_unit("evaluator_request", text, Unit::Seconds, self.seconds.clone());
        let text = "Whether an evaluator is left alone because it did not answer";
        registry.register("evaluator_breaker_open", text, self.breaker_open.clone());
        let text = "Questions that were asked twice and had two answers";
        registry.register("evaluator_inconsistent_answers", text, self.inconsistent.clone());
    }

    pub(crate) fn request(&self, evaluator: &Arc<str>, result: &'static str, took: Option<Duration>) {
        let evaluator = evaluator.clone();
        self.requests.get_or_create(&Result { evaluator: evaluator.clone(), result }).inc();
        if let Some(took) = took {
            self.lock_times().entry(evaluator.clone()).or_default().took(took);
            self.seconds.get_or_create(&Evaluator { evaluator }).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn inconsistent(&self, evaluator: &Arc<str>) {
        self.inconsistent.get_or_create(&Evaluator { evaluator: evaluator.clone() }).inc();
    }

    /// What 99 of 100 answers of an evaluator of late did not exceed, for people; `None`: there were none.
    #[must_use]
    pub fn p99(&self, evaluator: &str) -> Option<String> {
        self.lock_times().get(evaluator)?.p99().map(millis)
    }

    fn lock_times(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Times>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn breaker_open(&self, evaluator: &Arc<str>, is_open: bool) {
        let gauge = self.breaker_open.get_or_create(&Evaluator { evaluator: evaluator.clone() }).clone();
        gauge.set(i64::from(is_open));
    }
}
