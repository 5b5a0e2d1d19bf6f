//! All evaluators of an installation.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use serde_json::Value;
use sluice_engine::Charge;
use sluice_engine::evaluation::{Strategy, combine};
use sluice_rules::Looks;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::discovery::{self, Presence};
use crate::dispatch::{Ask, Dispatch};
use crate::judge::{Answered, label};
use crate::state::Report;
use crate::{
    AskedSidecar, Config, Evaluated, EvaluatorMetrics, EvaluatorState, Failure, Limits, NotEvaluated,
    OtherPods, Question, RuleEvaluator, SidecarPolicy, Verdict, Who,
};

/// Questions on their way to an evaluator's turns.
const ON_THE_WAY: usize = 64;

/// A pod whose JSON is larger (bytes) is read in its turn.
const LARGE: usize = 64 << 10;
/// Most values in such a pod that rules look at. One takes up to 600 bytes.
const MOST_VALUES: usize = 50_000;

struct Member {
    name: Arc<str>,
    asks: mpsc::Sender<Ask>,
    limits: watch::Sender<Limits>,
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
        let state = |config: &Config| EvaluatorState {
            name: config.name.clone(),
            presence: None,
            breaker: None,
            differs: None,
        };
        let states = watch::Sender::new(configs.iter().map(state).collect());
        let metrics = EvaluatorMetrics::default();
        let start = |(place, config): (usize, Config)| {
            let (asks, questions) = mpsc::channel(ON_THE_WAY);
            let (found, presence) = watch::channel(Presence::Unknown);
            let (unwanted, told) = watch::channel(0);
            let report = Report::new(states.clone(), place);
            let (limits, limited) = watch::channel(config.limits);
            let member = Member { name: config.name.clone(), asks, limits };
            tokio::spawn(discovery::follow(config.directory.clone(), found, told));
            let dispatch = Dispatch::new(config, metrics.clone(), report, unwanted);
            tokio::spawn(dispatch.run(questions, presence, limited));
            member
        };
        let members = configs.into_iter().enumerate().map(start).collect();
        Self { members, states, metrics, large_pods: Arc::new(Semaphore::new(1)) }
    }

    /// From now on the evaluator at this place of the configuration is asked so.
    pub fn limit(&self, place: usize, limits: Limits) {
        if let Some(member) = self.members.get(place) {
            member.limits.send_if_modified(|known| std::mem::replace(known, limits) != limits);
        }
    }

    /// Asks the question's sidecars and its rules about a pod. Nothing is charged if one of them fails: a part of a sum
    /// would be too little.
    ///
    /// Waits for the pod's turn, then for each sidecar's deadline at most. Dropping the future withdraws the question.
    ///
    /// # Errors
    /// With the first one, rules before the others and these in the order of the question, that failed.
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
            let mut charges = evaluate(&question, &metrics)?;
            drop(turn);
            let asks = question.sidecars.iter().map(|asked| ask_member(&members, asked, &question));
            let answers = join_all(asks).await;
            for (place, (asked, answer)) in (0..).zip(question.sidecars.iter().zip(answers)) {
                let failed = |failure: Failure| NotEvaluated {
                    evaluator: members
                        .get(asked.place)
                        .map(|member| Arc::clone(&member.name))
                        .unwrap_or_default(),
                    who: Who::Sidecar(place),
                    is_final: matches!(failure, Failure::BadPolicy(_)),
                    failure,
                };
                if let Answered::Charge(charge) = answer.map_err(failed)? {
                    charges.sums.push((asked.policy.rules().strategy, charge));
                    charges.sidecars |= bit(place);
                }
            }
            Ok(charges.evaluated(&question.native))
        }
    }

    /// What the question's rules say, at once. `None`: sidecars have to be asked too.
    #[must_use]
    pub fn answer(&self, question: &Question) -> Option<Result<Evaluated, NotEvaluated>> {
        let of_rules = || Ok(evaluate(question, &self.metrics)?.evaluated(&question.native));
        question.sidecars.is_empty().then(of_rules)
    }

    /// What a sidecar says of a pod. Nothing comes of it.
    ///
    /// # Errors
    /// When it has no answer, or may not answer that.
    pub fn try_sidecar(
        &self,
        asked: &AskedSidecar,
        question: &Question,
    ) -> impl Future<Output = Result<Answered, Failure>> + Send + use<> {
        ask_member(&self.members, asked, question)
    }

    /// What each of these rules says of a pod of which Kubernetes counts `counted`, at once. Nothing comes of it.
    #[must_use]
    pub fn try_rules<'r>(
        &self,
        rules: impl IntoIterator<Item = &'r RuleEvaluator>,
        pod_json: &[u8],
        counted: &Charge,
    ) -> Vec<Result<Answered, Failure>> {
        let rules: Vec<_> = rules.into_iter().collect();
        let pod = read(pod_json, rules.iter().copied());
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

/// What is charged by those that match the pod.
#[derive(Default)]
struct Charges {
    sums: Vec<(Strategy, Charge)>,
    /// A bit for each of the question's rules, and of its sidecars.
    rules: u16,
    sidecars: u16,
}

impl Charges {
    /// Of a pod of which `native` is charged where none matches.
    fn evaluated(&self, native: &Charge) -> Evaluated {
        let charges = self.sums.iter().map(|(strategy, charge)| (*strategy, charge));
        let retains = charges.clone().any(|(strategy, _)| strategy == Strategy::Retain);
        let verdict =
            combine(native, charges).map_or(Verdict::NoMatch, |charge| Verdict::Charge(charge.into()));
        Evaluated { verdict, rules: self.rules, sidecars: self.sidecars, retains }
    }
}

fn bit(place: u8) -> u16 {
    1u16.checked_shl(place.into()).unwrap_or(0)
}

/// What the rules charge that are about the pod.
fn evaluate(question: &Question, metrics: &EvaluatorMetrics) -> Result<Charges, NotEvaluated> {
    let mut charges = Charges::default();
    if question.rules.is_empty() {
        return Ok(charges);
    }
    let pod = read(&question.pod_json, question.rules.iter().map(AsRef::as_ref));
    for (place, rule) in (0..).zip(question.rules.iter()) {
        match answer_of(rule, &pod, &question.counted, metrics) {
            Ok(Answered::NoMatch) => {}
            Ok(Answered::Charge(charge)) => {
                charges.sums.push((rule.strategy(), charge));
                charges.rules |= bit(place);
            }
            Err(failure) => {
                let (evaluator, who) = (Arc::clone(rule.name()), Who::Rule(place));
                return Err(NotEvaluated { evaluator, who, failure, is_final: true });
            }
        }
    }
    Ok(charges)
}

/// What a sidecar says of the question's pod by its policy.
fn ask_member(
    members: &Arc<[Member]>,
    asked: &AskedSidecar,
    question: &Question,
) -> impl Future<Output = Result<Answered, Failure>> + Send + use<> {
    let (members, asked, question) = (Arc::clone(members), asked.clone(), question.clone());
    async move {
        asked.policy.usable()?;
        let other_pods = if asked.sees_other_pods { question.other_pods } else { OtherPods::default() };
        let question = Question { other_pods, ..question };
        let member = members.get(asked.place).ok_or(Failure::Lost)?;
        member.ask(question, asked.policy).await
    }
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

/// The pod as far as these rules look at it, if there is not too much in it.
fn read<'r>(json: &[u8], rules: impl Iterator<Item = &'r RuleEvaluator>) -> Result<Value, String> {
    if json.len() > LARGE && values(json) > MOST_VALUES {
        return Err(format!("the pod has more than {MOST_VALUES} fields and elements: make it smaller"));
    }
    let mut looks = Cow::Owned(Looks::default());
    for one in rules.filter_map(RuleEvaluator::looks) {
        if *looks == Looks::default() {
            looks = Cow::Borrowed(one);
        } else if *looks != *one {
            looks.to_mut().add(one);
        }
    }
    looks.read(json).map_err(|error| format!("the pod cannot be read: {error}"))
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
    async fn ask(&self, question: Question, policy: Arc<SidecarPolicy>) -> Result<Answered, Failure> {
        let (reply, answer) = oneshot::channel();
        // Both ends live as long as the evaluators; without them nobody answers.
        let sent = self.asks.send(Ask { question, policy, reply }).await;
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
        assert!(read(text.as_bytes(), std::iter::empty()).is_ok());
        let escaped = r#"{"a":"\\","b":["\"",1]}"#;
        assert_eq!(values(escaped.as_bytes()), 5);
        let many = format!("[{}0]", r#"{"name":"A"},"#.repeat(60_000));
        assert!(read(many.as_bytes(), std::iter::empty()).unwrap_err().contains("more than 50000 fields"));
    }
}
