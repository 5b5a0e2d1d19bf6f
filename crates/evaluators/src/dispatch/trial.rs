//! Tries an evaluator that is left alone: its HealthCheck, then a pod that had no answer.

use std::time::Duration;

use tokio::time::Instant;

use super::{Dispatch, Kind, ended};
use crate::discovery::Presence;
use crate::link::Incarnation;
use crate::{CallError, Question};
use sluice_evaluator_sdk::protocol::PodUsageResponse;

/// How long the HealthCheck may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);

impl Dispatch {
    /// When the next trial is due, as far as there is a process to try.
    pub(super) fn trial_due(&self) -> Option<Instant> {
        let can_be_tried = matches!(self.presence, Presence::Here(_)) && self.sample.is_some();
        self.breaker.due().filter(|_| can_be_tried)
    }

    pub(super) fn start_trial(&mut self) {
        if self.turns.has_abandoned() {
            // Calls of before keep its slots. The trial runs over the next connection.
            self.give_up();
            return;
        }
        let (Presence::Here(incarnation), Some((question, _))) = (&self.presence, &self.sample) else {
            return;
        };
        let answer = trial(incarnation.clone(), question.clone(), self.config.limits.timeout);
        let call = ended(Kind::Trial, answer, incarnation.link.clone(), incarnation.number);
        self.breaker.try_now();
        self.calls.push(Box::pin(call));
    }

    pub(super) fn tried(&mut self, result: &Result<PodUsageResponse, CallError>) {
        // An answer of any kind is one.
        if !matches!(result, Err(CallError::Lost(_))) {
            self.is_alive(u64::MAX);
            return;
        }
        self.breaker.trial_failed(Instant::now());
        // It may go on with the call: the next trial has a connection of its own.
        self.give_up();
    }
}

async fn trial(
    incarnation: Incarnation,
    question: Question,
    timeout: Duration,
) -> Result<PodUsageResponse, CallError> {
    let silent = || CallError::Lost("no answer".to_owned());
    match incarnation.link.is_healthy(HEALTH_TIMEOUT).await {
        Some(Ok(true)) => {}
        Some(Ok(false)) => return Err(CallError::Lost("not healthy".to_owned())),
        Some(Err(error)) => return Err(CallError::Lost(error.to_string())),
        None => return Err(silent()),
    }
    let usage = incarnation.link.usage(&question.pod_json, &question.other_pods);
    tokio::time::timeout(timeout, usage).await.unwrap_or_else(|_| Err(silent()))
}
