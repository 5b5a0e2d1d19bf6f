//! From a question of the gate to one of the evaluators.

use std::sync::Arc;

use sluice_evaluators::{OtherPods, Question};
use sluice_gate::EvaluatorQuestion;

/// The question, for nobody yet.
pub fn question_of(question: EvaluatorQuestion) -> Question {
    let EvaluatorQuestion {
        uid,
        namespace,
        hash,
        pod_json,
        other_pods,
        is_waiting,
        native,
        counted,
        selected: _,
    } = question;
    Question {
        uid: uid.to_string().into(),
        namespace,
        hash,
        pod_json,
        other_pods: OtherPods::from_bytes(other_pods),
        is_waiting,
        native,
        counted,
        rules: Arc::default(),
        sidecars: Arc::default(),
    }
}
