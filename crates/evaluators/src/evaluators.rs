//! All evaluators of an installation.

use std::sync::Arc;

use futures::future::join_all;
use sluice_engine::evaluation::{Strategy, combine};
use tokio::sync::{mpsc, oneshot, watch};

use crate::discovery::{self, Presence};
use crate::dispatch::{Ask, Dispatch};
use crate::judge::Answered;
use crate::state::Report;
use crate::{Config, EvaluatorMetrics, EvaluatorState, Failure, NotEvaluated, Question, Verdict};

/// Questions on their way to an evaluator's turns.
const ON_THE_WAY: usize = 64;

struct Member {
    name: Arc<str>,
    strategy: Strategy,
    asks: mpsc::Sender<Ask>,
}

/// All evaluators. Those that are not there yet are found when they come; dropping it ends all of it.
pub struct Evaluators {
    members: Arc<[Member]>,
    states: watch::Sender<Vec<EvaluatorState>>,
    metrics: EvaluatorMetrics,
}

impl Evaluators {
    /// Looks for these evaluators from now on. To be called inside a tokio runtime.
    #[must_use]
    pub fn new(configs: Vec<Config>) -> Self {
        let state =
            |config: &Config| EvaluatorState { name: config.name.clone(), presence: None, breaker: None };
        let states = watch::Sender::new(configs.iter().map(state).collect());
        let metrics = EvaluatorMetrics::default();
        let start = |(place, config): (usize, Config)| {
            let (asks, questions) = mpsc::channel(ON_THE_WAY);
            let (found, presence) = watch::channel(Presence::Unknown);
            let (unwanted, told) = watch::channel(0);
            let report = Report::new(states.clone(), place);
            let member = Member { name: config.name.clone(), strategy: config.rules.strategy, asks };
            tokio::spawn(discovery::follow(config.directory.clone(), found, told));
            tokio::spawn(Dispatch::new(config, metrics.clone(), report, unwanted).run(questions, presence));
            member
        };
        let members = configs.into_iter().enumerate().map(start).collect();
        Self { members, states, metrics }
    }

    /// Asks all evaluators about a pod. Nothing is charged if one of them fails: a part of a sum would be too little.
    ///
    /// Waits for the pod's turn, then for each evaluator's deadline at most. Dropping the future withdraws the question.
    ///
    /// # Errors
    /// With the first evaluator, in the order of their configuration, that failed.
    pub fn ask(
        &self,
        question: Question,
    ) -> impl Future<Output = Result<Verdict, NotEvaluated>> + Send + use<> {
        let members = self.members.clone();
        async move {
            let answers = join_all(members.iter().map(|member| member.ask(question.clone()))).await;
            let mut charges = Vec::new();
            for (member, answer) in members.iter().zip(answers) {
                let evaluator = || member.name.clone();
                match answer.map_err(|failure| NotEvaluated { evaluator: evaluator(), failure })? {
                    Answered::NoMatch => {}
                    Answered::Charge(charge) => charges.push((member.strategy, charge)),
                }
            }
            let charges = charges.iter().map(|(strategy, charge)| (*strategy, charge));
            Ok(combine(&question.native, charges).map_or(Verdict::NoMatch, |it| Verdict::Charge(it.into())))
        }
    }

    /// The state of each evaluator, in the order of their configuration. Whoever holds pods asks again when one
    /// [is ready](EvaluatorState::is_ready).
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Vec<EvaluatorState>> {
        self.states.subscribe()
    }

    /// Counts and times of all of them.
    #[must_use]
    pub const fn metrics(&self) -> &EvaluatorMetrics {
        &self.metrics
    }
}

impl Member {
    async fn ask(&self, question: Question) -> Result<Answered, Failure> {
        let (reply, answer) = oneshot::channel();
        // Both ends live as long as the evaluators; without them nobody answers.
        let sent = self.asks.send(Ask { question, reply }).await;
        if sent.is_err() {
            return Err(Failure::Lost);
        }
        answer.await.unwrap_or(Err(Failure::Lost))
    }
}
