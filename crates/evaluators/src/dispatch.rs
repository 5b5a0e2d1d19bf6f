//! Asks one evaluator: hands questions to the connection by the turns and the breaker, and answers to those who asked.

mod repeat;
mod trial;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::breaker::Breaker;
use crate::discovery::Presence;
use crate::judge::{Answered, judge_call, label};
use crate::link::{Incarnation, Link};
use crate::metrics::EvaluatorMetrics;
use crate::other_pods::MAX_REQUEST;
use crate::state::Report;
use crate::turns::{Turn, Turns};
use crate::{CallError, Config, Failure, Limits, Question, SidecarPolicy};
use repeat::Repeats;
use sluice_evaluator_sdk::protocol::PodUsageResponse;

/// How long after a lost call the end of its connection is waited for: it tells whether the call alone was lost.
const END_OF_CONNECTION: Duration = Duration::from_millis(20);
/// Bytes of a request beside its pods.
const AROUND: usize = 64;

/// A question, and who wants the answer.
pub(crate) struct Ask {
    pub(crate) question: Question,
    /// By which the answer is judged.
    pub(crate) policy: Arc<SidecarPolicy>,
    pub(crate) reply: oneshot::Sender<Result<Answered, Failure>>,
}

/// The end of a call.
struct Done {
    kind: Kind,
    result: Result<PodUsageResponse, CallError>,
    took: Duration,
    /// Over which it went.
    link: Arc<Link>,
    incarnation: u64,
    /// The connection has ended with it.
    has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Asked(u64),
    /// The same question a second time, to compare both answers. No pod is held for it.
    Repeated(u64),
    /// The breaker's question whether the sidecar works again. No pod is held for it.
    Trial,
}

/// One evaluator.
pub(crate) struct Dispatch {
    config: Config,
    metrics: EvaluatorMetrics,
    report: Report,
    turns: Turns,
    breaker: Breaker,
    presence: Presence,
    unwanted: watch::Sender<u64>,
    next_id: u64,
    /// Questions that wait or are asked, until their deadline.
    asks: HashMap<u64, Ask>,
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Since when calls that missed their deadline keep others from being asked.
    stuck_since: Option<Instant>,
    /// No call is started: the connection is given up when the last one has ended.
    is_draining: bool,
    /// The connection was given up here, and not by the other side.
    has_given_up: bool,
    /// A question whose call had no answer, and why: while the breaker is open it is told and tried.
    sample: Option<(Question, Failure)>,
    early_trial: Option<u64>,
    repeats: Repeats,
}

impl Dispatch {
    pub(crate) fn new(
        config: Config,
        metrics: EvaluatorMetrics,
        report: Report,
        unwanted: watch::Sender<u64>,
    ) -> Self {
        let repeats = Repeats::new(config.repeat_every);
        Self {
            repeats,
            turns: Turns::new(config.limits.concurrency),
            config,
            metrics,
            report,
            breaker: Breaker::default(),
            presence: Presence::Unknown,
            unwanted,
            next_id: 0,
            asks: HashMap::new(),
            calls: FuturesUnordered::new(),
            deadlines: BTreeSet::new(),
            stuck_since: None,
            is_draining: false,
            has_given_up: false,
            sample: None,
            early_trial: None,
        }
    }

    /// Runs until nobody can ask any more.
    pub(crate) async fn run(
        mut self,
        mut asks: mpsc::Receiver<Ask>,
        mut presence: watch::Receiver<Presence>,
        mut limits: watch::Receiver<Limits>,
    ) {
        self.metrics.breaker_open(&self.config.name, false);
        loop {
            self.start();
            let timer = self.timer();
            let elapsed = tokio::time::sleep_until(timer.unwrap_or_else(Instant::now));
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(ask) => self.asked(ask),
                    None => return,
                },
                Some(done) = self.calls.next() => self.done(done),
                Ok(()) = presence.changed() => {
                    let now = presence.borrow_and_update().clone();
                    self.found(now);
                }
                Ok(()) = limits.changed() => {
                    let now = *limits.borrow_and_update();
                    self.turns.allow(now.concurrency);
                    self.config.limits = now;
                }
                () = elapsed, if timer.is_some() => self.elapsed(Instant::now()),
            }
        }
    }

    fn timer(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let stuck = self.stuck_since.map(|since| since + self.config.limits.timeout);
        [deadline, stuck.filter(|_| !self.is_draining), self.trial_due()].into_iter().flatten().min()
    }

    fn asked(&mut self, Ask { question, policy, reply }: Ask) {
        let bytes = question.pod_json.len() + question.other_pods.bytes().len() + AROUND;
        let refusal = if let Presence::Absent(absence) = &self.presence {
            Some(Failure::NotThere(absence.clone()))
        } else if bytes > MAX_REQUEST {
            Some(Failure::TooLarge { bytes })
        } else if self.turns.is_abandoned(&question.uid) {
            Some(Failure::Silent(self.config.limits.timeout))
        } else if self.breaker.is_barred(&question.namespace) {
            // Another pod each time, so that no single one decides whether the evaluator is tried in vain.
            self.sample = self.sample.take().map(|(_, why)| (question.clone(), why));
            self.sample.as_ref().map(|(_, why)| why.clone())
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.tell(reply, Err(refusal), None);
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let Question { uid, namespace, is_waiting, .. } = question.clone();
        self.asks.insert(id, Ask { question, policy, reply });
        if let Some(surplus) = self.turns.push(Turn { id, uid, namespace, is_waiting }) {
            self.fail(surplus, Failure::Busy);
        }
    }

    /// Starts all calls that may run now.
    fn start(&mut self) {
        if self.is_draining {
            if self.turns.live_flights() == 0 {
                self.give_up();
            }
            return;
        }
        let Presence::Here(incarnation) = &self.presence else { return };
        let incarnation = incarnation.clone();
        if self.breaker.is_open() {
            // One at a time: what waits is of namespaces of which nothing is known.
            if self.breaker.due().is_some()
                && let Some(id) = self.next()
            {
                self.breaker.try_now();
                self.early_trial = Some(id);
                self.call(id, &incarnation);
            }
            return;
        }
        while let Some(id) = self.next() {
            self.call(id, &incarnation);
            self.stuck_since = None;
        }
        if !self.turns.is_stuck() {
            self.stuck_since = None;
        } else if self.turns.live_flights() == 0 && self.turns.is_full() {
            // Not one slot is left to anybody.
            self.give_up();
        } else if self.stuck_since.is_none() {
            self.stuck_since = Some(Instant::now());
        }
    }

    /// The next question that somebody still wants an answer to.
    fn next(&mut self) -> Option<u64> {
        loop {
            let id = self.turns.next()?;
            if self.asks.get(&id).is_some_and(|ask| !ask.reply.is_closed()) {
                return Some(id);
            }
            self.asks.remove(&id);
            self.turns.withdrawn(id);
        }
    }

    fn call(&mut self, id: u64, incarnation: &Incarnation) {
        let Some(Ask { question, .. }) = self.asks.get(&id) else { return };
        let answer = incarnation.link.usage(&question.pod_json, &question.other_pods);
        let (link, number) = (incarnation.link.clone(), incarnation.number);
        self.deadlines.insert((Instant::now() + self.config.limits.timeout, id));
        self.calls.push(Box::pin(ended(Kind::Asked(id), answer, link, number)));
    }

    fn done(&mut self, done: Done) {
        if done.has_ended && matches!(&self.presence, Presence::Here(it) if it.number == done.incarnation) {
            // Discovery tells what is there now.
            self.presence = Presence::Unknown;
        }
        match done.kind {
            Kind::Asked(id) => self.answered(id, done),
            Kind::Repeated(id) => self.repeated(id, done.result),
            Kind::Trial => self.tried(&done.result),
        }
    }

    fn answered(&mut self, id: u64, done: Done) {
        let Some(ask) = self.asks.remove(&id) else {
            // It comes after its deadline; whoever asked has been told.
            self.turns.answered(id, false);
            return;
        };
        self.deadlines.retain(|(_, due)| *due != id);
        let result = judge(done.result, &ask.question, &ask.policy);
        self.turns.answered(id, result.is_ok());
        match &result {
            Err(failure) if failure.is_no_answer() => self.no_answer(id, &ask.question, failure),
            _ => self.is_alive(id),
        }
        if let Ok(said) = &result {
            self.repeat_now_and_then(&ask, said, done.link, done.incarnation);
        }
        self.tell(ask.reply, result, Some(done.took));
    }

    /// The evaluator answers.
    fn is_alive(&mut self, id: u64) {
        if self.early_trial == Some(id) {
            self.early_trial = None;
        }
        if self.breaker.answered() {
            tracing::info!(evaluator = %self.config.name, "evaluator answers again");
            self.sample = None;
            self.metrics.breaker_open(&self.config.name, false);
            self.report.breaker(None);
        }
    }

    fn no_answer(&mut self, id: u64, question: &Question, failure: &Failure) {
        let opens = self.breaker.failed(&question.uid, &question.namespace, Instant::now());
        if self.early_trial == Some(id) {
            self.early_trial = None;
            self.breaker.early_trial_failed();
        }
        if !self.breaker.is_open() {
            return;
        }
        self.sample = Some((question.clone(), failure.clone()));
        if opens {
            tracing::warn!(evaluator = %self.config.name, %failure, "evaluator is left alone for a while");
            self.metrics.breaker_open(&self.config.name, true);
            self.report.breaker(Some(failure.clone()));
        }
        for barred in self.turns.take(|namespace| self.breaker.is_barred(namespace)) {
            self.fail(barred, failure.clone());
        }
    }

    fn elapsed(&mut self, now: Instant) {
        while self.deadlines.first().is_some_and(|(due, _)| *due <= now)
            && let Some((_, id)) = self.deadlines.pop_first()
        {
            if self.repeats.take(id).is_some() {
                self.turns.abandon(id);
            }
            let Some(ask) = self.asks.remove(&id) else { continue };
            let failure = Failure::Silent(self.config.limits.timeout);
            self.turns.abandon(id);
            self.no_answer(id, &ask.question, &failure);
            self.tell(ask.reply, Err(failure), Some(self.config.limits.timeout));
        }
        if self.stuck_since.is_some_and(|since| since + self.config.limits.timeout <= now) {
            self.is_draining = true;
        }
        if self.trial_due().is_some_and(|due| due <= now) {
            self.start_trial();
        }
    }

    /// Ends the connection; discovery makes another one.
    fn give_up(&mut self) {
        self.is_draining = false;
        self.stuck_since = None;
        if let Presence::Here(incarnation) = &self.presence {
            self.unwanted.send_replace(incarnation.number);
            self.has_given_up = true;
            self.presence = Presence::Unknown;
        }
    }

    fn found(&mut self, presence: Presence) {
        self.report.presence(&presence);
        let is_by_us = std::mem::take(&mut self.has_given_up);
        match &presence {
            Presence::Absent(absence) => {
                for id in self.turns.take(|_| true) {
                    self.fail(id, Failure::NotThere(absence.clone()));
                }
            }
            // Another process, perhaps one that works.
            Presence::Here(_) if !is_by_us => self.breaker.try_soon(Instant::now()),
            Presence::Here(_) | Presence::Unknown => {}
        }
        self.presence = presence;
    }

    fn fail(&mut self, id: u64, failure: Failure) {
        if let Some(ask) = self.asks.remove(&id) {
            self.tell(ask.reply, Err(failure), None);
        }
    }

    /// Answers, and counts; `took`: how long the call was, if there was one.
    fn tell(
        &self,
        reply: oneshot::Sender<Result<Answered, Failure>>,
        result: Result<Answered, Failure>,
        took: Option<Duration>,
    ) {
        self.metrics.request(&self.config.name, label(&result), took);
        // Whoever asked may have gone.
        drop(reply.send(result));
    }
}

/// Waits for the end of a call.
async fn ended(
    kind: Kind,
    answer: impl Future<Output = Result<PodUsageResponse, CallError>> + Send + 'static,
    link: Arc<Link>,
    incarnation: u64,
) -> Done {
    let started = Instant::now();
    let result = answer.await;
    let took = started.elapsed();
    let has_ended = matches!(result, Err(CallError::Lost(_)))
        && tokio::time::timeout(END_OF_CONNECTION, link.closed()).await.is_ok();
    Done { kind, result, took, link, incarnation, has_ended }
}

/// What the end of a call says of the pod.
fn judge(
    result: Result<PodUsageResponse, CallError>,
    question: &Question,
    policy: &SidecarPolicy,
) -> Result<Answered, Failure> {
    let size = question.pod_json.len() + question.other_pods.bytes().len();
    judge_call(result, policy.rules(), &question.counted, size)
}

#[cfg(test)]
mod tests;
