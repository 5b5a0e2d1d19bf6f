//! Evaluators in the shadow: they are asked, and what they would charge is told. Nothing is charged or held by them, and
//! nothing is asked for on their account. So what the gate does is the same with and without them.
//!
//! Rules are evaluated when a pod is seen. Sidecars are [asked later](super::shadow_asks), about one namespace after the
//! other.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::core::SelectorExt as _;
use sluice_engine::{Charge, PodId, Quantity};
use sluice_index::{PodFacts, PodView};

use super::evaluators::{EvaluatorQuestion, Selection};
use super::explain::QuotaName;
use super::other_pods::OtherPodsForm;

/// Most evaluators that are in the shadow at a time.
pub const MOST_SHADOWS: usize = 4;
/// Most amounts of quotas that are told of one rule.
pub const MOST_TOLD: usize = 16;

/// The evaluators in the shadow.
#[derive(Clone)]
pub struct ShadowConfig {
    /// Each by name, at most [`MOST_SHADOWS`]; further ones are not evaluated.
    pub evaluators: Vec<(Arc<str>, Selection)>,
    /// Those that are asked later, a bit for each; the others answer at once.
    pub later: u16,
    /// Those of them that are sent the other pods of the namespace.
    pub in_rounds: u16,
    /// How these are sent along.
    pub other_pods: Option<OtherPodsForm>,
    /// Asks just these.
    pub asker: Arc<dyn AskShadows>,
}

impl fmt::Debug for ShadowConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShadowConfig").field("evaluators", &self.evaluators).finish_non_exhaustive()
    }
}

impl ShadowConfig {
    /// Those that select the pod by its labels, a bit for each.
    pub(crate) fn selecting(&self, view: &PodView) -> u16 {
        let evaluators = self.evaluators.iter().take(MOST_SHADOWS).enumerate();
        let selecting = evaluators.filter(|(_, (_, selection))| selection.pods.matches(&view.labels));
        selecting.fold(0, |bits, (at, _)| bits | 1 << at)
    }
}

/// Who asks evaluators in the shadow.
pub trait AskShadows: Send + Sync {
    /// What the evaluator at each of `places` says of a pod of which Kubernetes counts `counted`, in microseconds.
    /// `pod_json` is [`PodView::json`].
    fn ask(&self, places: &[usize], pod_json: &[u8], counted: &Charge) -> Vec<Opinion>;

    /// What those say that the question selects, all of which are [asked later](ShadowConfig::later).
    fn ask_later(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Vec<SaidLater>>;

    /// Sidecars that cannot be asked now, a bit for each.
    fn unreachable(&self) -> u16;
}

/// What an evaluator that is asked later says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidLater {
    pub place: usize,
    pub opinion: Opinion,
    /// It says the same until the pod changes.
    pub is_final: bool,
}

/// What an evaluator says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// It does not match.
    NoMatch,
    /// The pod would be charged this.
    Charge {
        /// What the rule charges.
        charge: Arc<Charge>,
        /// What Kubernetes counts would be charged beside it.
        retains: bool,
    },
    /// It has no answer: a pod that waits would be held.
    None,
}

/// What the gate makes of an evaluator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFigures {
    /// How many pods it matches.
    pub matched: usize,
    /// How many are held because it has no answer about them.
    pub held: usize,
    /// What enforcing it would change; `None`: it is enforced.
    pub shadow: Option<ShadowFigures>,
}

/// What enforcing an evaluator in the shadow would change now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowFigures {
    /// How many pods that wait for quota would be held because it has no answer about them.
    pub held: usize,
    /// By key, how much more all pods together that run would be charged, or less.
    pub total: Vec<(String, Quantity)>,
    /// How many amounts of quotas would be others.
    pub differences: usize,
    /// The largest of these in parts of their limits, at most [`MOST_TOLD`].
    pub largest: Vec<ShadowAmount>,
}

/// An amount of a quota that would be another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowAmount {
    /// The namespace of the quota; empty: it is a cluster quota.
    pub namespace: Arc<str>,
    pub quota: QuotaName,
    /// The key as the quota has it.
    pub key: String,
    pub hard: Quantity,
    pub used: Quantity,
    /// What would be taken.
    pub enforced: Quantity,
}

impl ShadowAmount {
    /// What orders amounts of one size.
    pub(crate) fn place(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.quota.name, &self.key)
    }
}

#[derive(Clone, Debug)]
pub struct SeenPod {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: sluice_engine::Uid,
}

impl SeenPod {
    /// The pod of these facts.
    #[must_use]
    pub fn of(facts: &PodFacts) -> Self {
        Self { namespace: facts.namespace.clone(), name: facts.name.clone(), uid: facts.uid.clone() }
    }
}

/// A pod about which evaluators in the shadow are to be asked.
#[derive(Clone, Debug)]
pub(crate) struct AskInShadow {
    pub(crate) id: PodId,
    pub(crate) pod: SeenPod,
    /// [`PodView::hash`].
    pub(crate) hash: u64,
    /// Who is asked, a bit for each.
    pub(crate) selected: u16,
    /// What Kubernetes counts for it.
    pub(crate) counted: Arc<Charge>,
}
