//! Which pods evaluators are asked about, and what they answer.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use kube::core::{Selector, SelectorExt as _};
use sluice_engine::{Charge, PodId, Uid};
use sluice_index::{NamespaceId, PodView, Version};

use super::other_pods::{NamespacePods, OtherPodsForm};

/// What becomes of pods about which no answer can be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Those that wait go on waiting.
    #[default]
    Hold,
    /// When evaluators have not worked for ten seconds, pods are charged what Kubernetes counts.
    CountNatively,
}

/// The pods that an evaluator is asked about.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// By their labels.
    pub pods: Selector,
    /// By the labels of their namespaces.
    pub namespaces: Selector,
}

/// Most evaluators that there are at a time.
pub const MOST_EVALUATORS: usize = 16;

/// The evaluators that charge pods. Answers are asked for anew whenever another one of these is handed to the gate.
#[derive(Clone)]
pub struct EvaluatorsConfig {
    /// Each by name, at most [`MOST_EVALUATORS`]; further ones are not asked.
    pub evaluators: Vec<(Arc<str>, Selection)>,
    /// Those that are asked about no pod, a bit for each: they keep their place.
    pub idle: u16,
    /// Those whose pods are charged [natively](OnFailure::CountNatively) when they do not work, a bit for each. What others
    /// have no answer about is held.
    pub may_fail: u16,
    /// Those that are sent the other pods of the namespace, a bit for each.
    pub in_rounds: u16,
    /// How these are sent along; `None`: they are not.
    pub other_pods: Option<OtherPodsForm>,
    /// Asks just these.
    pub asker: Arc<dyn AskEvaluators>,
}

/// A round: pods of a namespace that are asked about together, by one state of it.
#[derive(Clone, Debug, Default)]
pub struct RoundOf {
    /// Tells it from all others; 0: none.
    pub number: u64,
    /// The state of the namespace is to be of this version of its pods, or of a later one.
    pub version: u64,
    /// The pods by that state, once they are read.
    pub(crate) pods: Arc<OnceLock<NamespacePods>>,
}

/// The pods of a namespace have to be read for a round.
#[derive(Clone, Debug)]
pub struct ReadRound {
    /// The namespace's handle.
    pub namespace: NamespaceId,
    pub name: Arc<str>,
    pub round: RoundOf,
    /// How they are to be sent.
    pub form: OtherPodsForm,
}

/// Why the pods of a namespace are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead {
    /// What is told of it, the same each time.
    pub text: Arc<str>,
    /// They are too many to be sent: that lasts.
    pub are_too_many: bool,
}

impl fmt::Debug for EvaluatorsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { evaluators, idle, may_fail, in_rounds, other_pods, asker: _ } = self;
        f.debug_struct("EvaluatorsConfig")
            .field("evaluators", evaluators)
            .field("idle", idle)
            .field("may_fail", may_fail)
            .field("in_rounds", in_rounds)
            .field("other_pods", other_pods)
            .finish_non_exhaustive()
    }
}

impl EvaluatorsConfig {
    /// The evaluators that select the pod by its labels, a bit for each.
    pub(crate) fn selecting(&self, view: &PodView) -> u16 {
        self.bits(|selection| selection.pods.matches(&view.labels))
    }

    /// Those that select a namespace.
    pub(crate) fn selecting_namespace(&self, is_selected: impl Fn(&Selector) -> bool) -> u16 {
        self.bits(|selection| is_selected(&selection.namespaces))
    }

    fn bits(&self, is_selected: impl Fn(&Selection) -> bool) -> u16 {
        let known = self.evaluators.iter().take(MOST_EVALUATORS).enumerate();
        known
            .filter(|(at, _)| self.idle >> at & 1 == 0)
            .fold(0, |bits, (at, (_, selection))| if is_selected(selection) { bits | 1 << at } else { bits })
    }

    /// The names of those that are asked about pods.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &str> {
        let known = self.evaluators.iter().take(MOST_EVALUATORS).enumerate();
        known.filter(|(at, _)| self.idle >> at & 1 == 0).map(|(_, (name, _))| &**name)
    }

    /// The names of those that are selected, as messages say them.
    pub(crate) fn names(&self, selected: u16) -> String {
        let known = self.evaluators.iter().take(MOST_EVALUATORS).enumerate();
        let names: Vec<&str> =
            known.filter(|(at, _)| selected & 1 << at != 0).map(|(_, (name, _))| &**name).collect();
        names.join(", ")
    }
}

/// What of a pod its answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// [`PodView::hash`].
    pub hash: u64,
    /// The evaluators that select the pod by its labels, a bit for each.
    pub selected_by: u16,
    /// By which configuration it was read, see [`State::follow_evaluators`](crate::State::follow_evaluators).
    pub revision: u32,
}

/// A question about a pod.
#[derive(Clone, Debug)]
pub struct Evaluate {
    /// The pod's handle.
    pub pod: PodId,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub uid: Uid,
    /// The version that its content was last seen in.
    pub version: Version,
    /// Its content: [`PodView::hash`].
    pub hash: u64,
    /// Tells this question from an earlier one about the same pod.
    pub serial: u64,
    /// Whether the pod waits for the answer.
    pub is_waiting: bool,
    /// What is charged of the pod where no evaluator matches, and beside answers that leave that as it is. Nothing of a
    /// launcher: its answer is charged beside its VM.
    pub native: Arc<Charge>,
    /// What Kubernetes counts for the pod, whatever is charged.
    pub counted: Arc<Charge>,
    /// Those of `config` that are asked, a bit for each.
    pub selected: u16,
    /// The round in which it is asked about, where the other pods of the namespace are sent along.
    pub round: Option<RoundOf>,
    /// The evaluators by which the pod was read.
    pub config: Arc<EvaluatorsConfig>,
}

/// Evaluators that the gate is to put in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Counts how many times evaluators were handed to the gate.
    pub(crate) number: u64,
    pub(crate) config: Option<Arc<EvaluatorsConfig>>,
}

/// The number of a configuration, and the evaluators that it has.
pub(crate) type Numbered = (u32, Option<Arc<EvaluatorsConfig>>);

/// A question about a pod to evaluators that are not in force yet.
#[derive(Clone, Debug)]
pub(crate) struct AskNext {
    /// The pod's handle.
    pub(crate) pod: PodId,
    pub(crate) namespace: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) is_waiting: bool,
    /// See [`Evaluate::native`].
    pub(crate) native: Arc<Charge>,
    /// See [`Evaluate::counted`].
    pub(crate) counted: Arc<Charge>,
    /// See [`Evaluate::selected`].
    pub(crate) selected: u16,
}

pub trait AskEvaluators: Send + Sync {
    /// What the selected evaluators together charge for a pod. When it is the pod's turn at each of them, the answer comes
    /// within their deadlines, or is a failure. Until then it may take long.
    fn ask(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Result<Said, Failed>>;

    /// The same at once, in microseconds, if [`Self::is_immediate`].
    fn answer(&self, question: EvaluatorQuestion) -> Option<Result<Said, Failed>>;

    /// Whether they are all in this process.
    fn is_immediate(&self) -> bool;
}

/// What evaluators are sent, and what is to be known besides.
#[derive(Clone, Debug)]
pub struct EvaluatorQuestion {
    /// The pod's identity.
    pub uid: Uid,
    pub namespace: Arc<str>,
    /// [`PodView::hash`].
    pub hash: u64,
    /// [`PodView::json`].
    pub pod_json: Bytes,
    /// The pods of its namespace, encoded by [`OtherPodsForm::encode`]; empty where they are not sent.
    pub other_pods: Bytes,
    /// Whether the pod is held until the answer comes.
    pub is_waiting: bool,
    /// See [`Evaluate::native`].
    pub native: Arc<Charge>,
    /// See [`Evaluate::counted`].
    pub counted: Arc<Charge>,
    /// See [`Evaluate::selected`].
    pub selected: u16,
}

/// What evaluators say of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub price: Price,
    /// Those that match the pod, a bit for each of the evaluators.
    pub matched: u16,
    /// What Kubernetes counts is in the price, for one of them retains it.
    pub retains: bool,
}

impl From<Price> for Said {
    fn from(price: Price) -> Self {
        Self { price, matched: 0, retains: false }
    }
}

/// What evaluators charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Price {
    /// All that is charged.
    Charge(Arc<Charge>),
    /// No evaluator matches: what Kubernetes counts is charged.
    NoMatch,
}

/// What evaluators charge for a pod as it is to be, and what that rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priced {
    pub price: Price,
    /// The configuration by which it was asked for.
    pub revision: u32,
    /// The evaluators that selected its namespace.
    pub in_namespace: u16,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What is told of it. It is the same each time, so it names no duration and no number of attempts.
    pub text: Arc<str>,
    /// The one that has none, a bit for each of the evaluators.
    pub by: u16,
    /// When the pod is asked about again.
    pub again: Again,
}

/// When a pod is asked about again that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// After a second, and later each time.
    Later,
    /// After so long.
    In(Duration),
    /// When it or the evaluators have changed: until then the answer is the same.
    WhenChanged,
}
