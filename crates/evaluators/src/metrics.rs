//! Counts and times of evaluators.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    evaluator: Arc<str>,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evaluator {
    evaluator: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: PodState,
}

/// What an evaluated pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodState {
    /// It has an answer.
    Answered,
    /// It waits for its first one, or for one to what it is now.
    Waiting,
    /// Its last question had no valid answer.
    Failed,
}

impl EncodeLabelValue for PodState {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let state = match self {
            Self::Answered => "answered",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        };
        state.encode(encoder)
    }
}

/// Metrics of evaluators. Cheap to clone; clones count together.
///
/// Questions and breakers are counted here; what becomes of answers is for whoever keeps them to count.
#[derive(Debug, Clone)]
pub struct EvaluatorMetrics {
    requests: Family<Result, Counter>,
    seconds: Family<Evaluator, Histogram, fn() -> Histogram>,
    breaker_open: Family<Evaluator, Gauge>,
    pods: Family<State, Gauge>,
    inconsistent: Family<Evaluator, Counter>,
    fail_open: Family<Evaluator, Counter>,
}

impl Default for EvaluatorMetrics {
    fn default() -> Self {
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0002, 2.0, 14));
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            breaker_open: Family::default(),
            pods: Family::default(),
            inconsistent: Family::default(),
            fail_open: Family::default(),
        }
    }
}

impl EvaluatorMetrics {
    /// Registers `evaluator_requests_total`, `evaluator_request_seconds`, `evaluator_breaker_open`, `evaluator_pods`,
    /// `evaluator_inconsistent_answers_total` and `evaluator_fail_open_total`.
    pub fn register(&self, registry: &mut Registry) {
        let text = "Questions to an evaluator by what came of them";
        registry.register("evaluator_requests", text, self.requests.clone());
        let text = "Time from asking an evaluator to its answer, or to the end of waiting for it";
        registry.register_with_unit("evaluator_request", text, Unit::Seconds, self.seconds.clone());
        let text = "Whether an evaluator is left alone because it did not answer";
        registry.register("evaluator_breaker_open", text, self.breaker_open.clone());
        registry.register(
            "evaluator_pods",
            "Pods that evaluators are about by their state",
            self.pods.clone(),
        );
        let text = "Answers of an evaluator that differ from its answer to the same question";
        registry.register("evaluator_inconsistent_answers", text, self.inconsistent.clone());
        let text = "Pods that were counted as Kubernetes does because an evaluator failed";
        registry.register("evaluator_fail_open", text, self.fail_open.clone());
    }

    pub(crate) fn request(&self, evaluator: &Arc<str>, result: &'static str, took: Option<Duration>) {
        let evaluator = evaluator.clone();
        self.requests.get_or_create(&Result { evaluator: evaluator.clone(), result }).inc();
        if let Some(took) = took {
            self.seconds.get_or_create(&Evaluator { evaluator }).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn breaker_open(&self, evaluator: &Arc<str>, is_open: bool) {
        let gauge = self.breaker_open.get_or_create(&Evaluator { evaluator: evaluator.clone() }).clone();
        gauge.set(i64::from(is_open));
    }

    /// Sets how many pods are in a state.
    pub fn pods(&self, state: PodState, pods: u64) {
        let gauge = self.pods.get_or_create(&State { state }).clone();
        gauge.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    /// Counts an answer that differs from the one to the same question before.
    pub fn inconsistent(&self, evaluator: &Arc<str>) {
        self.inconsistent.get_or_create(&Evaluator { evaluator: evaluator.clone() }).inc();
    }

    /// Counts a pod that is counted as Kubernetes does because the evaluator failed.
    pub fn fail_open(&self, evaluator: &Arc<str>) {
        self.fail_open.get_or_create(&Evaluator { evaluator: evaluator.clone() }).inc();
    }
}
