//! Everything that says what pods take in place of Kubernetes: sidecars, and the rules of `Evaluator`s.

use std::convert::Infallible;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_controllers::evaluators::EvaluatorObjects;
use sluice_evaluators::{Evaluators, NotEvaluated, OtherPods, Question, RuleEvaluator, Verdict};
use sluice_gate::{
    Again, AskEvaluators, EvaluatorQuestion, EvaluatorsConfig, Failed, Gate, MOST_EVALUATORS, Price,
    Selection,
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
        if let Some(rules) = self.objects.apply(event) {
            let names: Vec<&str> = rules.iter().map(|rule| &**rule.name()).collect();
            tracing::info!(?names, "rules of evaluators in force");
            self.enforce(rules);
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

    fn enforce(&self, rules: Vec<Arc<RuleEvaluator>>) {
        let Sidecars { evaluators, names, on_failure } = &self.sidecars;
        let of_sidecars = names.iter().map(|name| (Arc::clone(name), Selection::default()));
        let of_rules = rules.iter().map(|rule| {
            let selection = Selection { pods: rule.pods().clone(), namespaces: rule.namespaces().clone() };
            (Arc::clone(rule.name()), selection)
        });
        let selected: Vec<_> = of_sidecars.chain(of_rules).collect();
        let config = (!selected.is_empty()).then(|| {
            let asker = Asker { evaluators: Arc::clone(evaluators), sidecars: names.len(), rules };
            // Rules do not fail like processes: one without an answer has none until something changes.
            let may_fail = u16::MAX.checked_shr(u32::try_from(16 - names.len()).unwrap_or(16)).unwrap_or(0);
            let (on_failure, asker) = (*on_failure, Arc::new(asker));
            Arc::new(EvaluatorsConfig { evaluators: selected, on_failure, may_fail, asker })
        });
        self.gate.evaluate_by(config);
    }
}

/// Asks the sidecars, which are about all pods, and the rules that are about a pod.
struct Asker {
    evaluators: Arc<Evaluators>,
    /// So many come before the rules.
    sidecars: usize,
    rules: Vec<Arc<RuleEvaluator>>,
}

impl Asker {
    fn question(&self, question: EvaluatorQuestion) -> Question {
        let EvaluatorQuestion { uid, namespace, hash, pod_json, is_waiting, native, counted, selected } =
            question;
        Question {
            uid: uid.to_string().into(),
            namespace,
            hash,
            pod_json,
            other_pods: OtherPods::default(),
            is_waiting,
            native,
            counted,
            rules: self.rules(selected),
        }
    }

    fn rules(&self, selected: u16) -> Arc<[Arc<RuleEvaluator>]> {
        let is_selected =
            |place: usize| selected & 1u16.checked_shl(u32::try_from(place).unwrap_or(16)).unwrap_or(0) != 0;
        let rules = self.rules.iter().enumerate();
        rules
            .filter(|(place, _)| is_selected(self.sidecars + place))
            .map(|(_, rule)| Arc::clone(rule))
            .collect()
    }
}

impl AskEvaluators for Asker {
    fn ask(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Result<Price, Failed>> {
        let answer = self.evaluators.ask(self.question(question));
        async move { answered(answer.await) }.boxed()
    }

    fn answer(&self, question: EvaluatorQuestion) -> Option<Result<Price, Failed>> {
        self.evaluators.answer(&self.question(question)).map(answered)
    }

    fn is_immediate(&self) -> bool {
        self.evaluators.is_immediate()
    }
}

fn answered(answer: Result<Verdict, NotEvaluated>) -> Result<Price, Failed> {
    match answer {
        Ok(Verdict::Charge(charge)) => Ok(Price::Charge(charge)),
        Ok(Verdict::NoMatch) => Ok(Price::NoMatch),
        Err(why) => {
            let again = if why.is_final { Again::WhenChanged } else { Again::Later };
            Err(Failed { text: why.to_string().into(), again })
        }
    }
}
