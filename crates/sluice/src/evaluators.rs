//! Everything that says what pods take in place of Kubernetes: sidecars, and the rules of `Evaluator`s.

use std::convert::Infallible;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_controllers::evaluators::{Changed, EvaluatorObjects};
use sluice_engine::Charge;
use sluice_engine::evaluation::Strategy;
use sluice_evaluators::{
    Answered, Evaluated, Evaluators, NotEvaluated, OtherPods, Question, RuleEvaluator, Verdict,
};
use sluice_gate::{
    Again, AskEvaluators, AskShadows, EvaluatorQuestion, EvaluatorsConfig, Failed, Gate, MOST_EVALUATORS,
    OnFailure, Opinion, Price, Said, Selection, ShadowConfig,
};
use sluice_index::EvaluatorWire;
use sluice_runtime::health::Checks;
use sluice_runtime::shutdown::Tasks;
use sluice_runtime::watch::Event;
use tokio_util::sync::CancellationToken;

use crate::sidecars::Sidecars;

/// The evaluators of a controller. The gate follows those that are in force.
pub struct ActiveEvaluators {
    sidecars: Sidecars,
    objects: Arc<EvaluatorObjects>,
    gate: Gate,
}

impl ActiveEvaluators {
    /// The sidecars are in force from now on, rules when their list is read.
    pub fn new(sidecars: Sidecars, gate: Gate) -> Self {
        let most = MOST_EVALUATORS.saturating_sub(sidecars.names.len());
        let objects = Arc::new(EvaluatorObjects::new(most));
        let this = Self { sidecars, objects, gate };
        if !this.sidecars.names.is_empty() {
            this.enforce(Vec::new());
        }
        this
    }

    /// The `Evaluator`s.
    pub fn objects(&self) -> Arc<EvaluatorObjects> {
        Arc::clone(&self.objects)
    }

    /// Tells of sidecars in the answer of `/readyz`.
    pub fn tell(&self, ready: &Checks) {
        self.sidecars.tell(ready);
    }

    /// An event of the watch of `Evaluator`s. When this returns, no pod goes by the rules of before.
    pub fn on_evaluators(&self, event: &Event<EvaluatorWire>) {
        let Changed { enforced, shadow } = self.objects.apply(event);
        let names = |rules: &[Arc<RuleEvaluator>]| -> Vec<String> {
            rules.iter().map(|rule| rule.name().to_string()).collect()
        };
        if let Some(rules) = enforced {
            tracing::info!(names = ?names(&rules), "rules of evaluators in force");
            self.enforce(rules);
        }
        if let Some(rules) = shadow {
            tracing::info!(names = ?names(&rules), "rules of evaluators in the shadow");
            self.gate.shadow_by((!rules.is_empty()).then(|| self.shadow(rules)));
        }
    }

    /// Has the gate ask them.
    pub fn spawn(&self, tasks: &mut Tasks, cancel: &CancellationToken) {
        let listing = self.gate.clone().list_for_evaluators(cancel.clone());
        tasks.spawn("evaluators", async move {
            listing.await;
            Ok::<_, Infallible>(())
        });
        self.sidecars.spawn(tasks, &self.gate, cancel);
    }

    fn shadow(&self, rules: Vec<Arc<RuleEvaluator>>) -> Arc<ShadowConfig> {
        let selected = rules.iter().map(selection).collect();
        let asker = Arc::new(ShadowAsker { evaluators: Arc::clone(&self.sidecars.evaluators), rules });
        Arc::new(ShadowConfig { rules: selected, asker })
    }

    fn enforce(&self, rules: Vec<Arc<RuleEvaluator>>) {
        self.gate.evaluate_by(config_of(&self.sidecars, rules));
    }
}

/// What has only these rules asked, in the process itself; `None`: there are none.
pub fn by_rules(rules: Vec<Arc<RuleEvaluator>>) -> Option<Arc<EvaluatorsConfig>> {
    let evaluators = Arc::new(Evaluators::new(Vec::new()));
    let none = Sidecars { evaluators, names: Vec::new(), on_failure: OnFailure::Hold, other_pods: None };
    config_of(&none, rules)
}

fn config_of(sidecars: &Sidecars, rules: Vec<Arc<RuleEvaluator>>) -> Option<Arc<EvaluatorsConfig>> {
    let Sidecars { evaluators, names, on_failure, other_pods } = sidecars;
    let of_sidecars = names.iter().map(|name| (Arc::clone(name), Selection::default()));
    let selected: Vec<_> = of_sidecars.chain(rules.iter().map(selection)).collect();
    (!selected.is_empty()).then(|| {
        let asker = Asker { evaluators: Arc::clone(evaluators), sidecars: names.len(), rules };
        // Rules do not fail like processes: one without an answer has none until something changes.
        let may_fail = u16::MAX.checked_shr(u32::try_from(16 - names.len()).unwrap_or(16)).unwrap_or(0);
        let (on_failure, other_pods, asker) = (*on_failure, *other_pods, Arc::new(asker));
        Arc::new(EvaluatorsConfig { evaluators: selected, on_failure, may_fail, other_pods, asker })
    })
}

fn selection(rule: &Arc<RuleEvaluator>) -> (Arc<str>, Selection) {
    let selection = Selection { pods: rule.pods().clone(), namespaces: rule.namespaces().clone() };
    (Arc::clone(rule.name()), selection)
}

/// Evaluates the rules in the shadow.
struct ShadowAsker {
    evaluators: Arc<Evaluators>,
    rules: Vec<Arc<RuleEvaluator>>,
}

impl AskShadows for ShadowAsker {
    fn ask(&self, places: &[usize], pod_json: &[u8], counted: &Charge) -> Vec<Opinion> {
        let rules = || places.iter().filter_map(|place| self.rules.get(*place)).map(|rule| &**rule);
        let answers = self.evaluators.try_rules(rules(), pod_json, counted);
        let opinions = answers.into_iter().zip(rules()).map(|(answer, rule)| match answer {
            Ok(Answered::NoMatch) => Opinion::NoMatch,
            Ok(Answered::Charge(charge)) => {
                Opinion::Charge { charge: charge.into(), retains: rule.strategy() == Strategy::Retain }
            }
            Err(_) => Opinion::None,
        });
        opinions.collect()
    }
}

/// Asks the sidecars, which are about all pods, and the rules that are about a pod.
struct Asker {
    evaluators: Arc<Evaluators>,
    /// So many come before the rules.
    sidecars: usize,
    rules: Vec<Arc<RuleEvaluator>>,
}

/// The rules that are about a pod, and the bit of each.
struct Selected {
    rules: Arc<[Arc<RuleEvaluator>]>,
    bits: Box<[u16]>,
}

impl Asker {
    fn question(&self, question: EvaluatorQuestion) -> (Question, Selected) {
        let EvaluatorQuestion {
            uid,
            namespace,
            hash,
            pod_json,
            other_pods,
            is_waiting,
            native,
            counted,
            selected,
        } = question;
        let selected = self.selected(selected);
        let question = Question {
            uid: uid.to_string().into(),
            namespace,
            hash,
            pod_json,
            other_pods: OtherPods::from_bytes(other_pods),
            is_waiting,
            native,
            counted,
            rules: Arc::clone(&selected.rules),
        };
        (question, selected)
    }

    fn selected(&self, selected: u16) -> Selected {
        let places = u32::try_from(self.sidecars).unwrap_or(u32::MAX)..;
        let bit = |place| 1u16.checked_shl(place).unwrap_or(0);
        let found = places.map(bit).zip(&self.rules).filter(|(bit, _)| selected & bit != 0);
        let (bits, rules): (Vec<u16>, Vec<_>) = found.map(|(bit, rule)| (bit, Arc::clone(rule))).unzip();
        Selected { rules: rules.into(), bits: bits.into() }
    }
}

impl AskEvaluators for Asker {
    fn ask(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Result<Said, Failed>> {
        let (question, selected) = self.question(question);
        let answer = self.evaluators.ask(question);
        async move { selected.said(answer.await) }.boxed()
    }

    fn answer(&self, question: EvaluatorQuestion) -> Option<Result<Said, Failed>> {
        let (question, selected) = self.question(question);
        self.evaluators.answer(&question).map(|answer| selected.said(answer))
    }

    fn is_immediate(&self) -> bool {
        self.evaluators.is_immediate()
    }
}

impl Selected {
    fn said(&self, answer: Result<Evaluated, NotEvaluated>) -> Result<Said, Failed> {
        match answer {
            Ok(Evaluated { verdict, rules, retains }) => {
                let price = match verdict {
                    Verdict::Charge(charge) => Price::Charge(charge),
                    Verdict::NoMatch => Price::NoMatch,
                };
                let matched = (0..).zip(&*self.bits).filter(|(place, _)| rules >> place & 1 == 1);
                Ok(Said { price, matched: matched.fold(0, |bits, (_, bit)| bits | bit), retains })
            }
            Err(why) => {
                let again = if why.is_final { Again::WhenChanged } else { Again::Later };
                let mut rules = self.rules.iter().zip(&*self.bits);
                // A sidecar may have the name of a rule.
                let by = rules.find(|(rule, _)| why.is_final && *rule.name() == why.evaluator);
                Err(Failed { text: why.to_string().into(), by: by.map_or(0, |(_, bit)| *bit), again })
            }
        }
    }
}
