//! Asks a question once more now and then: the same question has the same answer.
//!
//! Where the second answer differs, the `Evaluator` is not `Consistent`. The pod stays charged by the first answer until the
//! pod or the round changes. A repeat that fails has no effect: the pod was answered before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Ask, Dispatch, Kind, ended, judge};
use crate::judge::Answered;
use crate::link::Link;
use crate::turns::Turn;
use crate::{CallError, Question, SidecarPolicy};
use sluice_evaluator_sdk::protocol::PodUsageResponse;

/// So many equal answers in a row end what is told of unequal ones.
const EQUAL: u32 = 10;

/// The question that was asked once more, and how often that had which end.
pub(super) struct Repeats {
    every: Duration,
    pub(super) next: Instant,
    asked: Option<Repeat>,
    /// Equal answers since the last one that differed.
    equal: u32,
}

pub(super) struct Repeat {
    id: u64,
    question: Question,
    policy: Arc<SidecarPolicy>,
    first: Answered,
}

impl Repeats {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, next: Instant::now() + every, asked: None, equal: 0 }
    }

    /// The question, if this is the one that was asked once more.
    pub(super) fn take(&mut self, id: u64) -> Option<Repeat> {
        self.asked.take_if(|repeat| repeat.id == id)
    }
}

impl Dispatch {
    /// A question was just answered over `link`, and it may be time to ask it once more: in the slot that is free by that,
    /// if no other question waits for it, and over the same connection, for another process may well say something else.
    pub(super) fn repeat_now_and_then(&mut self, ask: &Ask, said: &Answered, link: Arc<Link>, number: u64) {
        let now = Instant::now();
        let is_sound = !self.breaker.is_open() && !self.is_draining && !self.turns.has_abandoned();
        if now < self.repeats.next || self.repeats.asked.is_some() || !is_sound {
            return;
        }
        // Its slot names no pod and no namespace, so a failure of it makes no later question of either wait.
        let unnamed = || Arc::from("");
        let turn = Turn { id: self.next_id, uid: unnamed(), namespace: unnamed(), is_waiting: false };
        if !self.turns.take_slot(turn) {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.repeats.next = now + self.repeats.every;
        let question = ask.question.clone();
        let answer = link.usage(&question.pod_json, &question.other_pods);
        self.repeats.asked = Some(Repeat { id, question, policy: ask.policy.clone(), first: said.clone() });
        self.deadlines.insert((now + self.config.limits.timeout, id));
        self.calls.push(Box::pin(ended(Kind::Repeated(id), answer, link, number)));
    }

    pub(super) fn repeated(&mut self, id: u64, result: Result<PodUsageResponse, CallError>) {
        self.turns.withdrawn(id);
        self.deadlines.retain(|(_, due)| *due != id);
        // One that missed its deadline is compared with nothing.
        let Some(Repeat { question, policy, first, .. }) = self.repeats.take(id) else { return };
        if let Ok(second) = judge(result, &question, &policy) {
            self.compare(&first, &second, &question);
        }
    }

    fn compare(&mut self, first: &Answered, second: &Answered, question: &Question) {
        if first == second {
            self.repeats.equal = self.repeats.equal.saturating_add(1);
            if self.repeats.equal == EQUAL {
                self.report.differs(None);
            }
            return;
        }
        self.repeats.equal = 0;
        self.metrics.inconsistent(&self.config.name);
        let Question { uid, namespace, .. } = question;
        let (evaluator, first, second) = (&self.config.name, first.to_string(), second.to_string());
        tracing::warn!(%evaluator, %namespace, %uid, first, second, "the same question has two answers");
        self.report.differs(Some(
            format!("it was asked the same about a pod of namespace {namespace} twice, and said {first}, then {second}")
                .into(),
        ));
    }
}
