//! Everything that says what pods take in place of Kubernetes: sidecars, and the rules of `Evaluator`s.

use std::convert::Infallible;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_api::{EvaluatorOnFailure, EvaluatorOtherPods};
use sluice_controllers::evaluators::{Changed, EvaluatorObjects, InForce, Shadowed};
use sluice_evaluators::{
    AskedSidecar, Evaluated, EvaluatorMetrics, EvaluatorState, Evaluators, NotEvaluated, Question,
    RuleEvaluator, SidecarPolicy, Verdict, Who,
};
use sluice_gate::{
    Again, AskEvaluators, EvaluatorQuestion, EvaluatorsConfig, Failed, Gate, OnFailure, Price, Said,
    Selection, ShadowConfig,
};
use sluice_index::EvaluatorWire;
use sluice_runtime::health::Checks;
use sluice_runtime::shutdown::Tasks;
use sluice_runtime::watch::Event;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::question::question_of;
use crate::shadow_asker::{ShadowAsker, Tried};
use crate::sidecars::{Sidecars, bit, other_pods_form};

/// The evaluators of a controller. The gate follows those that are in force.
pub struct ActiveEvaluators {
    sidecars: Sidecars,
    objects: Arc<EvaluatorObjects>,
    gate: Gate,
}

impl ActiveEvaluators {
    /// They are in force when the list of `Evaluator`s is read: before that it is not known which sidecars are switched off.
    /// No process leads before.
    pub fn new(sidecars: Sidecars, gate: Gate) -> Self {
        let objects = Arc::new(EvaluatorObjects::new(sidecars.names.clone(), sidecars.without_object));
        Self { sidecars, objects, gate }
    }

    pub fn objects(&self) -> Arc<EvaluatorObjects> {
        Arc::clone(&self.objects)
    }

    /// The states of the sidecars, by their places.
    pub fn states(&self) -> watch::Receiver<Vec<EvaluatorState>> {
        self.sidecars.evaluators.follow()
    }

    /// Counts and times of all of them.
    pub fn metrics(&self) -> EvaluatorMetrics {
        self.sidecars.evaluators.metrics().clone()
    }

    /// Tells of sidecars in the answer of `/readyz`.
    pub fn tell(&self, ready: &Checks) {
        self.sidecars.tell(ready);
    }

    /// An event of the watch of `Evaluator`s. When a list has ended, no pod goes by the rules and policies of before: a new
    /// leader waits for one. Otherwise it may until the gate has prepared those of now.
    pub fn on_evaluators(&self, event: &Event<EvaluatorWire>) {
        let Changed { enforced, shadow, number } = self.objects.apply(event);
        let limits = self.objects.limits();
        for (place, limits) in limits.iter().enumerate() {
            self.sidecars.evaluators.limit(place, *limits);
        }
        let at_once: Vec<usize> = limits.iter().map(|limits| limits.concurrency).collect();
        self.gate.limit_evaluators(&at_once);
        let is_list = matches!(event, Event::InitDone);
        if let Some(in_force) = enforced {
            self.gate.change_evaluators(number, config_of(&self.sidecars, in_force), is_list);
        } else if is_list {
            self.gate.enforce_evaluators();
        }
        if let Some(shadowed) = shadow {
            let names: Vec<&str> = shadowed.iter().map(|it| &**it.name()).collect();
            tracing::info!(?names, "evaluators in the shadow");
            self.gate.shadow_by((!shadowed.is_empty()).then(|| self.shadow(shadowed)));
        }
    }

    /// Has the gate ask them.
    pub fn spawn(&self, tasks: &mut Tasks, cancel: &CancellationToken) {
        let following = self.gate.clone().follow_evaluators(cancel.clone());
        tasks.spawn("evaluators", async move {
            following.await;
            Ok::<_, Infallible>(())
        });
        let shadows = self.gate.clone().ask_shadows(cancel.clone());
        tasks.spawn("evaluators in the shadow", async move {
            shadows.await;
            Ok::<_, Infallible>(())
        });
        self.sidecars.spawn(tasks, &self.gate, cancel);
    }

    fn shadow(&self, shadowed: Vec<Shadowed>) -> Arc<ShadowConfig> {
        let selected = |one: &Shadowed| match one {
            Shadowed::Rule(rule) => selection(rule),
            Shadowed::Sidecar(name, _, policy) => (Arc::clone(name), selection_of(policy)),
        };
        let evaluators = shadowed.iter().map(selected).collect();
        let asked = shadowed.into_iter().map(|one| match one {
            Shadowed::Rule(rule) => Tried::Rule(rule),
            Shadowed::Sidecar(_, place, policy) => Tried::Sidecar(self.sidecars.asked(place, &policy)),
        });
        let asked: Vec<_> = asked.collect();
        let bits = |is_one: &dyn Fn(&AskedSidecar) -> bool| {
            let is_such = |tried: &Tried| matches!(tried, Tried::Sidecar(asked) if is_one(asked));
            let such = asked.iter().enumerate().filter(|(_, tried)| is_such(tried));
            such.fold(0, |bits, (place, _)| bits | bit(place))
        };
        let (later, in_rounds) = (bits(&|_| true), bits(&|asked| asked.sees_other_pods));
        let other_pods = (in_rounds != 0).then(other_pods_form);
        let asker = Arc::new(ShadowAsker { evaluators: Arc::clone(&self.sidecars.evaluators), asked });
        Arc::new(ShadowConfig { evaluators, later, in_rounds, other_pods, asker })
    }
}

/// What has only these rules asked, in the process itself; `None`: there are none.
pub fn by_rules(rules: Vec<Arc<RuleEvaluator>>) -> Option<Arc<EvaluatorsConfig>> {
    let evaluators = Arc::new(Evaluators::new(Vec::new()));
    let none = Sidecars {
        evaluators,
        names: Vec::new(),
        without_object: 0,
        on_failure: OnFailure::Hold,
        see_other_pods: false,
    };
    config_of(&none, InForce { rules, sidecars: Vec::new() })
}

/// `None`: nobody is asked.
fn config_of(sidecars: &Sidecars, in_force: InForce) -> Option<Arc<EvaluatorsConfig>> {
    let InForce { rules, sidecars: policies } = in_force;
    let idle_selection = |name: &Arc<str>| (Arc::clone(name), Selection::default());
    let of_sidecars = sidecars.names.iter().zip(&policies).map(|(name, policy)| match policy {
        Some(policy) => (Arc::clone(name), selection_of(policy)),
        None => idle_selection(name),
    });
    let evaluators: Vec<_> = of_sidecars.chain(rules.iter().map(selection)).collect();
    let asked: Vec<_> = policies
        .iter()
        .enumerate()
        .map(|(place, policy)| Some(sidecars.asked(place, policy.as_ref()?)))
        .collect();
    let bits = |is_one: &dyn Fn(&Option<AskedSidecar>) -> bool| {
        asked.iter().enumerate().filter(|(_, it)| is_one(it)).fold(0, |bits, (place, _)| bits | bit(place))
    };
    let idle = bits(&Option::is_none);
    if rules.is_empty() && asked.iter().all(Option::is_none) {
        return None;
    }
    // Rules do not fail like processes: one without an answer has none until something changes.
    let may_fail = bits(&|it| it.as_ref().is_some_and(|it| sidecars.counts_natively(&it.policy)));
    let in_rounds = bits(&|it| it.as_ref().is_some_and(|it| it.sees_other_pods));
    let other_pods = (in_rounds != 0).then(other_pods_form);
    let asker = Arc::new(Asker { evaluators: Arc::clone(&sidecars.evaluators), sidecars: asked, rules });
    Some(Arc::new(EvaluatorsConfig { evaluators, idle, may_fail, in_rounds, other_pods, asker }))
}

impl Sidecars {
    /// How the sidecar at this place is asked.
    fn asked(&self, place: usize, policy: &Arc<SidecarPolicy>) -> AskedSidecar {
        let sees_other_pods =
            policy.other_pods().map_or(self.see_other_pods, |it| it == EvaluatorOtherPods::Namespace);
        AskedSidecar { place, policy: Arc::clone(policy), sees_other_pods }
    }

    fn counts_natively(&self, policy: &SidecarPolicy) -> bool {
        match policy.on_failure() {
            Some(on_failure) => on_failure == EvaluatorOnFailure::CountNatively,
            None => self.on_failure == OnFailure::CountNatively,
        }
    }
}

fn selection(rule: &Arc<RuleEvaluator>) -> (Arc<str>, Selection) {
    let selection = Selection { pods: rule.pods().clone(), namespaces: rule.namespaces().clone() };
    (Arc::clone(rule.name()), selection)
}

fn selection_of(policy: &SidecarPolicy) -> Selection {
    Selection { pods: policy.pods().clone(), namespaces: policy.namespaces().clone() }
}

/// Asks the sidecars and the rules that are about a pod.
struct Asker {
    evaluators: Arc<Evaluators>,
    /// By their places; `None`: it is not asked. The rules come after them.
    sidecars: Vec<Option<AskedSidecar>>,
    rules: Vec<Arc<RuleEvaluator>>,
}

/// Those that are about a pod, and the bit of each.
struct Selected {
    sidecars: Arc<[AskedSidecar]>,
    of_sidecars: Box<[u16]>,
    rules: Arc<[Arc<RuleEvaluator>]>,
    of_rules: Box<[u16]>,
}

impl Asker {
    fn question(&self, question: EvaluatorQuestion) -> (Question, Selected) {
        let selected = self.selected(question.selected);
        let (rules, sidecars) = (Arc::clone(&selected.rules), Arc::clone(&selected.sidecars));
        (Question { rules, sidecars, ..question_of(question) }, selected)
    }

    fn selected(&self, selected: u16) -> Selected {
        let is_selected = |bit: &u16| selected & bit != 0;
        let sidecars = (0..).map(bit).zip(&self.sidecars).filter(|(bit, _)| is_selected(bit));
        let asked = sidecars.filter_map(|(bit, asked)| Some((bit, asked.clone()?)));
        let (of_sidecars, sidecars): (Vec<u16>, Vec<_>) = asked.unzip();
        let rules = (self.sidecars.len()..).map(bit).zip(&self.rules).filter(|(bit, _)| is_selected(bit));
        let (of_rules, rules): (Vec<u16>, Vec<_>) = rules.map(|(bit, rule)| (bit, Arc::clone(rule))).unzip();
        Selected {
            sidecars: sidecars.into(),
            of_sidecars: of_sidecars.into(),
            rules: rules.into(),
            of_rules: of_rules.into(),
        }
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
        self.sidecars.iter().all(Option::is_none)
    }
}

impl Selected {
    fn said(&self, answer: Result<Evaluated, NotEvaluated>) -> Result<Said, Failed> {
        match answer {
            Ok(Evaluated { verdict, rules, sidecars, retains }) => {
                let price = match verdict {
                    Verdict::Charge(charge) => Price::Charge(charge),
                    Verdict::NoMatch => Price::NoMatch,
                };
                let matched = all_of(rules, &self.of_rules) | all_of(sidecars, &self.of_sidecars);
                Ok(Said { price, matched, retains })
            }
            Err(why) => {
                let again = if why.is_final { Again::WhenChanged } else { Again::Later };
                let by = match why.who {
                    Who::Rule(place) => self.of_rules.get(usize::from(place)),
                    Who::Sidecar(place) => self.of_sidecars.get(usize::from(place)),
                };
                Err(Failed { text: why.to_string().into(), by: by.copied().unwrap_or(0), again })
            }
        }
    }
}

/// The bits of those whose places are marked.
fn all_of(marked: u16, bits: &[u16]) -> u16 {
    (0..).zip(bits).filter(|(place, _)| marked >> place & 1 == 1).fold(0, |all, (_, bit)| all | bit)
}
