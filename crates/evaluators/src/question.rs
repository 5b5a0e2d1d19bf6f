//! What is asked, and the answer.

use std::sync::Arc;

use bytes::Bytes;
use sluice_engine::Charge;

use crate::{OtherPods, RuleEvaluator, SidecarPolicy};

/// What is asked about one pod. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Question {
    /// The pod's uid.
    pub uid: Arc<str>,
    /// Its namespace. Namespaces take turns.
    pub namespace: Arc<str>,
    /// Hash of what is sent, of [`sluice_index::ViewKey`]. An answer is about this.
    pub hash: u64,
    /// The pod as it is sent, of [`sluice_index::ViewKey`].
    pub pod_json: Bytes,
    /// The pods of its namespace, shared by all questions about one state of it.
    pub other_pods: OtherPods,
    /// It waits for its release; such pods come before those that run.
    pub is_waiting: bool,
    /// What is charged where no evaluator is about it, and beside answers that retain it.
    pub native: Arc<Charge>,
    /// What Kubernetes counts for it, whatever is charged: by this floors are judged.
    pub counted: Arc<Charge>,
    /// The rules that are about the pod, by its labels.
    pub rules: Arc<[Arc<RuleEvaluator>]>,
    /// The sidecars that are, and how they are asked.
    pub sidecars: Arc<[AskedSidecar]>,
}

#[derive(Clone, Debug)]
pub struct AskedSidecar {
    /// Its place in the configuration.
    pub place: usize,
    pub policy: Arc<SidecarPolicy>,
    /// Whether it is sent the other pods.
    pub sees_other_pods: bool,
}

/// What evaluators say of a pod, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    pub verdict: Verdict,
    /// The rules that match it, a bit for each of [`Question::rules`].
    pub rules: u16,
    /// The sidecars that match it, a bit for each of [`Question::sidecars`].
    pub sidecars: u16,
    /// Whether what Kubernetes counts is in a charge, for one of them retains it.
    pub retains: bool,
}

/// What evaluators say of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes this and nothing else: what Kubernetes counts is in it where it is to be.
    Charge(Arc<Charge>),
    /// No evaluator is about it: it takes what Kubernetes counts.
    NoMatch,
}
