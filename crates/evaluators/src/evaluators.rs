//! All evaluators of an installation.

use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use serde_json::Value;
use sluice_engine::Charge;
use sluice_engine::evaluation::{Strategy, combine};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::discovery::{self, Presence};
use crate::dispatch::{Ask, Dispatch};
use crate::judge::{Answered, label};
use crate::state::Report;
use crate::{
    Config, Evaluated, EvaluatorMetrics, EvaluatorState, Failure, NotEvaluated, Question, RuleEvaluator,
    Verdict,
};

/// Questions on their way to an evaluator's turns.
const ON_THE_WAY: usize = 64;

/// A pod whose JSON is larger (bytes) is read in its turn.
const LARGE: usize = 64 << 10;
/// Most values in such a pod that rules look at. One takes up to 600 bytes.
const MOST_VALUES: usize = 50_000;

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
    /// Whose turn it is to read a large pod.
    large_pods: Arc<Semaphore>,
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
        Self { members, states, metrics, large_pods: Arc::new(Semaphore::new(1)) }
    }

    /// Asks all evaluators and the question's rules about a pod. Nothing is charged if one of them fails: a part of a sum
    /// would be too little.
    ///
    /// Waits for the pod's turn, then for each evaluator's deadline at most. Dropping the future withdraws the question.
    ///
    /// # Errors
    /// With the first one, rules before the others and these in the order of their configuration, that failed.
    pub fn ask(
        &self,
        question: Question,
    ) -> impl Future<Output = Result<Evaluated, NotEvaluated>> + Send + use<> {
        let (members, metrics) = (self.members.clone(), self.metrics.clone());
        let large_pods = Arc::clone(&self.large_pods);
        async move {
            // Large pods one at a time: what is read of one takes many times its size.
            let is_large = !question.rules.is_empty() && question.pod_json.len() > LARGE;
            let turn = if is_large { Some(large_pods.acquire().await) } else { None };
            let of_rules = evaluate(&question, &metrics)?;
            drop(turn);
            if members.is_empty() {
                return Ok(of_rules.evaluated(&question.native, &[]));
            }
            let answers = join_all(members.iter().map(|member| member.ask(question.clone()))).await;
            let mut charges = Vec::new();
            for (member, answer) in members.iter().zip(answers) {
                let evaluator = || member.name.clone();
                let failed = |failure| NotEvaluated { evaluator: evaluator(), failure, is_final: false };
                match answer.map_err(failed)? {
                    Answered::NoMatch => {}
                    Answered::Charge(charge) => charges.push((member.strategy, charge)),
                }
            }
            Ok(of_rules.evaluated(&question.native, &charges))
        }
    }

    /// Whether there are only rules: then [`Self::answer`] has the answer.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.members.is_empty()
    }

    /// What the question's rules say, at once. `None`: others have to be asked too.
    #[must_use]
    pub fn answer(&self, question: &Question) -> Option<Result<Evaluated, NotEvaluated>> {
        let of_rules = || Ok(evaluate(question, &self.metrics)?.evaluated(&question.native, &[]));
        self.is_immediate().then(of_rules)
    }

    /// What each of these rules says of a pod of which Kubernetes counts `counted`, at once. Nothing comes of it.
    #[must_use]
    pub fn try_rules<'r>(
        &self,
        rules: impl IntoIterator<Item = &'r RuleEvaluator>,
        pod_json: &[u8],
        counted: &Charge,
    ) -> Vec<Result<Answered, Failure>> {
        let pod = read(pod_json);
        rules.into_iter().map(|rule| answer_of(rule, &pod, counted, &self.metrics)).collect()
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

/// What the rules charge that match the pod.
#[derive(Default)]
struct OfRules {
    charges: Vec<(Strategy, Charge)>,
    /// A bit for each of the question's rules.
    matching: u16,
}

impl OfRules {
    /// With what others charge, of a pod of which `native` is charged where none matches.
    fn evaluated(&self, native: &Charge, others: &[(Strategy, Charge)]) -> Evaluated {
        let charges = self.charges.iter().chain(others).map(|(strategy, charge)| (*strategy, charge));
        let retains = charges.clone().any(|(strategy, _)| strategy == Strategy::Retain);
        let verdict =
            combine(native, charges).map_or(Verdict::NoMatch, |charge| Verdict::Charge(charge.into()));
        Evaluated { verdict, rules: self.matching, retains }
    }
}

/// What the rules charge that are about the pod.
fn evaluate(question: &Question, metrics: &EvaluatorMetrics) -> Result<OfRules, NotEvaluated> {
    let mut of_rules = OfRules::default();
    if question.rules.is_empty() {
        return Ok(of_rules);
    }
    let pod = read(&question.pod_json);
    for (place, rule) in (0..).zip(&*question.rules) {
        match answer_of(rule, &pod, &question.counted, metrics) {
            Ok(Answered::NoMatch) => {}
            Ok(Answered::Charge(charge)) => {
                of_rules.charges.push((rule.strategy(), charge));
                of_rules.matching |= 1u16.checked_shl(place).unwrap_or(0);
            }
            Err(failure) => {
                return Err(NotEvaluated { evaluator: Arc::clone(rule.name()), failure, is_final: true });
            }
        }
    }
    Ok(of_rules)
}

/// What the rule says of the pod, if that can be read.
fn answer_of(
    rule: &RuleEvaluator,
    pod: &Result<Value, String>,
    counted: &Charge,
    metrics: &EvaluatorMetrics,
) -> Result<Answered, Failure> {
    let begin = Instant::now();
    let answer = match pod {
        Ok(pod) => rule.answer(pod, counted),
        Err(why) => Err(Failure::NoAnswer(why.as_str().into())),
    };
    metrics.request(rule.name(), label(&answer), Some(begin.elapsed()));
    answer
}

/// The pod, if there is not too much in it.
fn read(json: &[u8]) -> Result<Value, String> {
    if json.len() > LARGE && values(json) > MOST_VALUES {
        return Err(format!("the pod has more than {MOST_VALUES} fields and elements: make it smaller"));
    }
    serde_json::from_slice(json).map_err(|error| format!("the pod cannot be read: {error}"))
}

/// How many values a text in JSON has, or some more.
fn values(json: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'{' | b'[' if !is_text => values += 1,
            _ => {}
        }
    }
    values
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;

    #[test]
    fn a_pod_of_too_many_values_is_not_read() {
        let text = format!(r#"{{"a":"{}"}}"#, "[,{".repeat(100_000));
        assert_eq!(values(text.as_bytes()), 2, "what is in a text is no value");
        assert!(read(text.as_bytes()).is_ok());
        let escaped = r#"{"a":"\\","b":["\"",1]}"#;
        assert_eq!(values(escaped.as_bytes()), 5);
        let many = format!("[{}0]", r#"{"name":"A"},"#.repeat(60_000));
        assert!(read(many.as_bytes()).unwrap_err().contains("more than 50000 fields"));
    }
}
