//! A gate with namespaces of pods that run, beside an API server and evaluators that do all it asks for at once.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::objects::from_json;
use sluice_engine::{ChargeRules, Quantity};
use sluice_gate::{
    Action, Answer, EvaluatorsConfig, Gate, GateConfig, GateMetrics, GateWatches, Moment, Outcome, Price,
    Record, RecordedObject, Said,
};
use sluice_index::{ArqWire, PodWire};
use sluice_runtime::watch::{Event, WatchHealth};

use crate::cluster_json::{self, QUOTA};
use crate::pod_json::{Facts, SHAPES, Stage, Template, mix, namespace_name};

/// Rounds until a gate must have settled.
const ROUNDS: usize = 200_000;

pub(super) struct World {
    gate: Gate,
    began: Instant,
    template: Template,
    text: String,
    namespaces: u64,
    pods: u64,
    made: u64,
    version: u64,
}

impl World {
    /// A namespace in which all pods are charged, and what is charged is recorded.
    pub(super) fn new(pods: u64, config: Option<Arc<EvaluatorsConfig>>) -> anyhow::Result<Self> {
        let mut world = Self::listed(1, pods, config)?;
        world.settle_all()?;
        Ok(world)
    }

    /// All pods are seen, and nothing is asked or done yet.
    pub(super) fn listed(
        namespaces: u64,
        pods: u64,
        config: Option<Arc<EvaluatorsConfig>>,
    ) -> anyhow::Result<Self> {
        let config_of_gate = GateConfig::new(names::GATE, ChargeRules::for_minor(36));
        let gate = Gate::new(config_of_gate, &[], GateMetrics::default(), watches(), Arc::default());
        let (began, template, text) = (Instant::now(), Template::new(), String::new());
        let mut world = Self { gate, began, template, text, namespaces, pods, made: 0, version: 2 };
        world.gate.evaluate_by(config);
        world.gate.on_namespaces(&Event::Init);
        for number in 0..namespaces {
            world.gate.on_namespaces(&Event::InitApply(from_json(cluster_json::namespace(number, 1))));
        }
        world.gate.on_namespaces(&Event::InitDone);
        world.gate.on_quotas(&Event::Init);
        for number in 0..namespaces {
            world.gate.on_quotas(&Event::InitApply(from_json(quota(number, 2, &Value::Null))));
        }
        world.gate.on_quotas(&Event::InitDone);
        world.gate.on_pods_with_text(&Event::Init, None);
        for number in 0..pods {
            let pod = world.write(number)?;
            world.gate.on_pods_with_text(&Event::InitApply(pod), Some(&world.text));
        }
        world.gate.on_pods_with_text(&Event::InitDone, None);
        let now = world.now();
        world.gate.state().lock().lead(now);
        Ok(world)
    }

    /// Does all that the gate asks for, until it asks for nothing.
    pub(super) fn settle_all(&mut self) -> anyhow::Result<()> {
        for _ in 0..ROUNDS {
            let now = self.now();
            if self.gate.state().lock().next_due_ms(now) != Some(0) {
                return Ok(());
            }
            let actions = self.plan();
            self.settle(actions);
        }
        anyhow::bail!("the gate goes on deciding about {} pods", self.pods)
    }

    /// A pod of the namespace changes; how long that took, in microseconds.
    pub(super) fn event(&mut self) -> anyhow::Result<f64> {
        let number = mix(self.made) % self.pods.max(1);
        self.made += 1;
        let event = Event::Apply(self.write(number)?);
        let begin = Instant::now();
        self.gate.on_pods_with_text(&event, Some(&self.text));
        let actions = self.plan();
        let (asked, mut rest): (Vec<Action>, Vec<Action>) =
            actions.into_iter().partition(|action| matches!(action, Action::Evaluate(_)));
        if !asked.is_empty() {
            self.settle(asked);
            rest.extend(self.plan());
        }
        let took = begin.elapsed().as_secs_f64() * 1e6;
        self.settle(rest);
        Ok(took)
    }

    /// The pod in a new version, of another shape than before.
    fn write(&mut self, number: u64) -> anyhow::Result<PodWire> {
        self.version += 1;
        let (version, shape) = (self.version, self.version % SHAPES);
        let namespace = number * self.namespaces / self.pods.max(1);
        self.text.clear();
        self.template
            .write(Facts { number, namespace, version, shape, stage: Stage::Running }, &mut self.text);
        serde_json::from_str(&self.text).context("reading a pod")
    }

    fn now(&self) -> Moment {
        let mono_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Moment { mono_ms, unix_ms: self.gate.unix_ms() }
    }

    fn plan(&self) -> Vec<Action> {
        self.gate.state().lock().plan(self.now())
    }

    fn settle(&mut self, actions: Vec<Action>) {
        for action in actions {
            let outcome = match action {
                Action::Record(record) => {
                    self.version += 1;
                    let object: ArqWire =
                        from_json(quota(namespace_of(&record), self.version, &status(&record)));
                    Outcome::Recorded(record.quota, record.uid, Answer::Done(RecordedObject::Quota(object)))
                }
                Action::Evaluate(question) => Outcome::Evaluated {
                    pod: question.pod,
                    uid: question.uid,
                    hash: question.hash,
                    serial: question.serial,
                    answer: Ok(Said::from(Price::Charge(question.counted))),
                },
                Action::CatchUp => Outcome::CaughtUp,
                Action::CatchUpClusterQuotas => Outcome::ClusterQuotasCaughtUp,
                Action::ListTargets => Outcome::TargetsListed,
                Action::ListQuotas(asked) => {
                    let quota = from_json(quota(0, self.version, &Value::Null));
                    Outcome::Listed(asked.into_iter().map(|(id, _)| id).collect(), Answer::Done(vec![quota]))
                }
                Action::WriteEvent(event) => Outcome::EventWritten(event, true),
                _ => continue,
            };
            let now = self.now();
            self.gate.state().lock().on_outcome(outcome, now);
        }
    }
}

fn watches() -> GateWatches {
    let health = |kind: &str| WatchHealth::new(kind);
    GateWatches {
        pods: health("pods"),
        namespaces: health("namespaces"),
        quotas: health("quotas"),
        cluster_quotas: health("cluster quotas"),
        charges: health("charges"),
        aaqs: health("AAQs"),
        device_classes: health("device classes"),
        evaluators: health("evaluators"),
        machines: health("machines"),
        kubevirts: health("installations of KubeVirt"),
    }
}

/// The number of the quota's namespace.
fn namespace_of(record: &Record) -> u64 {
    let name = record.name.namespace();
    name.split('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// With room for all.
fn quota(namespace: u64, version: u64, status: &Value) -> Value {
    let hard = json!({"pods": "100k", "requests.cpu": "100k", "requests.memory": "1Pi"});
    let metadata = json!({
        "name": QUOTA, "namespace": namespace_name(namespace), "uid": cluster_json::quota_uid(namespace),
        "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-12T08:00:01Z",
    });
    json!({"metadata": metadata, "spec": {"hard": hard}, "status": status})
}

fn status(record: &Record) -> Value {
    let texts = |list: &[(String, Quantity)]| {
        let texts = list.iter().map(|(key, amount)| (key.clone(), json!(amount.to_string())));
        Value::Object(texts.collect())
    };
    json!({
        "hard": texts(&record.target.hard), "used": texts(&record.target.used), "held": record.held,
        "charges": record.charges,
    })
}
