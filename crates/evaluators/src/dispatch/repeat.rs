//! Asks a question once more now and then: the same question has the same answer.
//!
//! What differs is told and charged nowhere. A charge stays what was answered first until the pod or the round changes.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Ask, Dispatch};
use crate::judge::Answered;
use crate::turns::Turn;
use crate::{Failure, Question};

/// So many equal answers in a row end what is told of unequal ones.
const EQUAL: u32 = 10;

/// The question that was asked once more, and how often that had which end.
pub(super) struct Repeats {
    every: Duration,
    next: Instant,
    asked: Option<Repeat>,
    /// Equal answers since the last one that differed.
    equal: u32,
}

struct Repeat {
    id: u64,
    first: Answered,
    /// A question that nobody waits for is not asked.
    _wanted: oneshot::Receiver<Result<Answered, Failure>>,
}

impl Repeats {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, next: Instant::now() + every, asked: None, equal: 0 }
    }

    /// What was answered at first, if this is the question that was asked once more.
    pub(super) fn take(&mut self, id: u64) -> Option<Answered> {
        self.asked.take_if(|repeat| repeat.id == id).map(|repeat| repeat.first)
    }
}

impl Dispatch {
    /// A call of its own, by a turn like any other, where nothing waits for one.
    pub(super) fn repeat_now_and_then(&mut self, ask: &Ask, result: &Result<Answered, Failure>) {
        let Ok(first) = result else { return };
        let now = Instant::now();
        if now < self.repeats.next || !self.asks.is_empty() || self.breaker.is_open() || self.is_draining {
            return;
        }
        self.repeats.next = now + self.repeats.every;
        let id = self.next_id;
        self.next_id += 1;
        let (reply, wanted) = oneshot::channel();
        let question = Question { is_waiting: false, ..ask.question.clone() };
        let Question { uid, namespace, is_waiting, .. } = question.clone();
        self.repeats.asked = Some(Repeat { id, first: first.clone(), _wanted: wanted });
        self.asks.insert(id, Ask { question, policy: ask.policy.clone(), reply });
        if let Some(surplus) = self.turns.push(Turn { id, uid, namespace, is_waiting }) {
            self.fail(surplus, Failure::Busy);
        }
    }

    /// No answer is none that differs: that is told otherwise.
    pub(super) fn compare(&mut self, first: &Answered, second: &Result<Answered, Failure>, ask: &Ask) {
        let Ok(second) = second else { return };
        if first == second {
            self.repeats.equal = self.repeats.equal.saturating_add(1);
            if self.repeats.equal == EQUAL {
                self.report.differs(None);
            }
            return;
        }
        self.repeats.equal = 0;
        self.metrics.inconsistent(&self.config.name);
        let Question { uid, namespace, .. } = &ask.question;
        let (evaluator, first, second) = (&self.config.name, first.to_string(), second.to_string());
        tracing::warn!(%evaluator, %namespace, %uid, first, second, "the same question has two answers");
        self.report.differs(Some(
            format!("it was asked the same about a pod of namespace {namespace} twice, and said {first}, then {second}")
                .into(),
        ));
    }
}
