//! Which pods evaluators are asked about, and what they answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use kube::core::{Selector, SelectorExt as _};
use sluice_engine::{Charge, PodId, Uid};
use sluice_index::{PodView, Version};

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
#[derive(Clone, Debug, Default)]
pub struct EvaluatorsConfig {
    /// Each by name, at most [`MOST_EVALUATORS`]; further ones are not asked.
    pub evaluators: Vec<(Arc<str>, Selection)>,
    /// What becomes of pods about which no answer can be had.
    pub on_failure: OnFailure,
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
        let known = self.evaluators.iter().take(MOST_EVALUATORS);
        known.enumerate().fold(
            0,
            |bits, (at, (_, selection))| {
                if is_selected(selection) { bits | 1 << at } else { bits }
            },
        )
    }

    /// Their names, as messages say them.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.evaluators.iter().map(|(name, _)| &**name).collect();
        names.join(", ")
    }
}

/// What of a pod its answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// [`PodView::hash`].
    pub hash: u128,
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
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that its content was last seen in.
    pub version: Version,
    /// Its content: [`PodView::hash`].
    pub hash: u128,
    /// Tells this question from an earlier one about the same pod.
    pub serial: u64,
    /// Whether the pod waits for the answer.
    pub is_waiting: bool,
    /// What is charged of the pod where no evaluator matches, and beside answers that leave that as it is. Nothing of a
    /// launcher: its answer is charged beside its VM.
    pub native: Arc<Charge>,
}

/// Who asks evaluators.
pub trait AskEvaluators: Send + Sync {
    /// What all evaluators together charge for a pod. The answer comes within their deadline, or is a failure.
    fn ask(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Result<Price, Failed>>;
}

/// What evaluators are sent, and what is to be known besides.
#[derive(Clone, Debug)]
pub struct EvaluatorQuestion {
    /// The pod's identity.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// [`PodView::hash`].
    pub hash: u128,
    /// [`PodView::json`].
    pub pod_json: Bytes,
    /// Whether the pod is held until the answer comes.
    pub is_waiting: bool,
    /// See [`Evaluate::native`].
    pub native: Arc<Charge>,
}

/// What evaluators charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Price {
    /// All that is charged.
    Charge(Arc<Charge>),
    /// No evaluator matches: what Kubernetes counts is charged.
    NoMatch,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What is told of it. It is the same each time, so it names no duration and no number of attempts.
    pub text: Arc<str>,
    /// When the pod may be asked about again; `None`: after a second, and later each time.
    pub retry: Option<Duration>,
}
