//! What an event of a pod costs the gate where evaluators say what it takes, without a server and without the call itself.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use sluice_engine::{Amount, Charge, Resource};
use sluice_evaluators::{Evaluators, OtherPods, Question, RuleEvaluator, Verdict};
use sluice_gate::{AskEvaluators, EvaluatorQuestion, EvaluatorsConfig, Failed, Price, Said, Selection};
use sluice_index::ViewKey;

use super::releases::rule;
use super::world::World;
use crate::pod_json::{Facts, Stage, Template};
use crate::report::{Run, median, quantile, say};

const EVENT: &str = "a running pod changes and what Kubernetes counts for it too: its text is read, the state is told, the \
                     round of decisions follows, and with a sidecar the answer, which is there at once, and another round";

/// By how many pods the namespace has, and beside a rule and beside nothing.
pub(super) fn measure(run: &Run) -> anyhow::Result<Value> {
    say("evaluators: events of pods");
    let events = run.either(300, 10_000);
    let counts = run.either([10, 100, 1_000], [10, 1_000, 10_000]);
    let mut sidecar = counts.map(|pods| (pods, None));
    for (pods, world) in &mut sidecar {
        *world = Some(World::new(*pods, Some(config(Arc::new(Constant))))?);
    }
    let mut sidecar: Vec<(u64, World, Vec<f64>)> =
        sidecar.into_iter().filter_map(|(pods, world)| Some((pods, world?, Vec::new()))).collect();
    let [_, some, _] = counts;
    let mut nobody = (World::new(some, None)?, Vec::new());
    let asker = Rule { rule: Arc::new(read_rule()?), evaluators: Evaluators::new(Vec::new()) };
    let mut by_rule = (World::new(some, Some(config(Arc::new(asker))))?, Vec::new());
    // By turns: how fast a machine is changes.
    for _ in 0..events {
        for (_, world, times) in &mut sidecar {
            times.push(world.event()?);
        }
        for (world, times) in [&mut nobody, &mut by_rule] {
            times.push(world.event()?);
        }
    }
    let mut rows = Vec::new();
    for (pods, _, mut times) in sidecar {
        rows.push(json!({
            "pods": pods, "us_per_event": median(&mut times), "p99_us_per_event": quantile(&mut times, 0.99),
        }));
    }
    let of = |row: Option<&Value>| crate::report::number(row.unwrap_or(&Value::Null), "us_per_event");
    let growth = of(rows.last()) / of(rows.first());
    let (nobody, by_rule) = (median(&mut nobody.1), median(&mut by_rule.1));
    Ok(json!({
        "event": EVENT, "pod_events": rows, "growth": growth, "rule_evaluation_us": evaluation(run)?,
        "without_us": nobody, "rule_us": by_rule, "rule_added_us": by_rule - nobody, "rule_pods": some,
    }))
}

/// The rule alone, about a pod that is read already: p50.
fn evaluation(run: &Run) -> anyhow::Result<f64> {
    let (rule, mut text) = (read_rule()?, String::new());
    let facts = Facts { number: 7, namespace: 0, version: 99, shape: 30, stage: Stage::Running };
    Template::new().write(facts, &mut text);
    let pod: Value = serde_json::from_str(&ViewKey::default().view(&text)?.json)?;
    let cpu = (Resource::from_quota_key("requests.cpu"), Amount::from_nanos(1_500_000_000));
    let counted = Charge::from_pairs([cpu, (Resource::Pods, Amount::ONE)]);
    let mut times = Vec::new();
    for _ in 0..run.either(1_000, 20_000) {
        let begin = Instant::now();
        let answer = rule.answer(&pod, &counted);
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        ensure!(answer.is_ok(), "the rule has no answer");
    }
    Ok(median(&mut times))
}

fn read_rule() -> anyhow::Result<RuleEvaluator> {
    let mut spec = rule();
    spec.as_object_mut().context("a rule that is none")?.remove("podSelector");
    let rule = RuleEvaluator::read("bench", &spec);
    ensure!(rule.fault().is_none(), "the rule cannot be used: {:?}", rule.fault());
    Ok(rule)
}

pub(super) fn config(asker: Arc<dyn AskEvaluators>) -> Arc<EvaluatorsConfig> {
    let evaluators = vec![("bench".into(), Selection::default())];
    Arc::new(EvaluatorsConfig { evaluators, idle: 0, may_fail: 0, in_rounds: 0, other_pods: None, asker })
}

/// A sidecar whose questions the bench answers.
pub(super) struct Constant;

impl AskEvaluators for Constant {
    fn ask(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Result<Said, Failed>> {
        async move { Ok(Said::from(Price::Charge(question.counted))) }.boxed()
    }

    fn answer(&self, _: EvaluatorQuestion) -> Option<Result<Said, Failed>> {
        None
    }

    fn is_immediate(&self) -> bool {
        false
    }
}

/// A rule, asked as the controller asks it.
struct Rule {
    rule: Arc<RuleEvaluator>,
    evaluators: Evaluators,
}

impl AskEvaluators for Rule {
    fn ask(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Result<Said, Failed>> {
        let answer = self.answer(question);
        async move { answer.unwrap_or_else(|| Ok(Said::from(Price::NoMatch))) }.boxed()
    }

    fn answer(&self, question: EvaluatorQuestion) -> Option<Result<Said, Failed>> {
        let asked = Question {
            uid: question.uid.to_string().into(),
            namespace: question.namespace,
            hash: question.hash,
            pod_json: question.pod_json,
            other_pods: OtherPods::default(),
            is_waiting: question.is_waiting,
            native: question.native,
            counted: question.counted,
            rules: [Arc::clone(&self.rule)].into(),
            sidecars: Arc::default(),
        };
        let said = self.evaluators.answer(&asked)?.ok()?;
        let price = match said.verdict {
            Verdict::Charge(charge) => Price::Charge(charge),
            Verdict::NoMatch => Price::NoMatch,
        };
        Some(Ok(Said { price, matched: said.rules, retains: said.retains }))
    }

    fn is_immediate(&self) -> bool {
        true
    }
}
