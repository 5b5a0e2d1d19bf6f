//! Rules in the shadow: they are evaluated, and what they would charge is told. Nothing is charged or held by them, and
//! nothing is asked for on their account. So what the gate does is the same with and without them.

use std::fmt;
use std::sync::Arc;

use kube::core::SelectorExt as _;
use sluice_engine::{Charge, Quantity};
use sluice_index::{PodFacts, PodView};

use super::evaluators::Selection;
use super::explain::QuotaName;

/// Most rules that are in the shadow at a time.
pub const MOST_SHADOWS: usize = 4;
/// Most amounts of quotas that are told of one rule.
pub const MOST_TOLD: usize = 16;

/// The rules in the shadow.
#[derive(Clone)]
pub struct ShadowConfig {
    /// Each by name, at most [`MOST_SHADOWS`]; further ones are not evaluated.
    pub rules: Vec<(Arc<str>, Selection)>,
    /// Evaluates just these.
    pub asker: Arc<dyn AskShadows>,
}

impl fmt::Debug for ShadowConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShadowConfig").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl ShadowConfig {
    /// The rules that select the pod by its labels, a bit for each.
    pub(crate) fn selecting(&self, view: &PodView) -> u16 {
        let rules = self.rules.iter().take(MOST_SHADOWS).enumerate();
        let selecting = rules.filter(|(_, (_, selection))| selection.pods.matches(&view.labels));
        selecting.fold(0, |bits, (at, _)| bits | 1 << at)
    }
}

/// Who evaluates rules in the shadow.
pub trait AskShadows: Send + Sync {
    /// What the rule at this place says of a pod of which Kubernetes counts `counted`, each of `places`, in microseconds.
    /// `pod_json` is [`PodView::json`].
    fn ask(&self, places: &[usize], pod_json: &[u8], counted: &Charge) -> Vec<Opinion>;
}

/// What a rule says of a pod.
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

/// What the gate makes of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFigures {
    /// How many pods it matches.
    pub matched: usize,
    /// How many are held because it has no answer about them.
    pub held: usize,
    /// What enforcing it would change; `None`: it is enforced.
    pub shadow: Option<ShadowFigures>,
}

/// What enforcing a rule in the shadow would change now.
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
    /// The quota.
    pub quota: QuotaName,
    /// The key as the quota has it.
    pub key: String,
    /// The limit.
    pub hard: Quantity,
    /// What is taken.
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

/// Which pod was seen.
#[derive(Clone, Debug)]
pub struct SeenPod {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its identity.
    pub uid: sluice_engine::Uid,
}

impl SeenPod {
    /// The pod of these facts.
    #[must_use]
    pub fn of(facts: &PodFacts) -> Self {
        Self { namespace: facts.namespace.clone(), name: facts.name.clone(), uid: facts.uid.clone() }
    }
}
