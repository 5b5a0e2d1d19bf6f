//! Pods with the label `label-app` take twice or three times what Kubernetes counts, as `label-sidecar`, the example of
//! application-aware-quota: `label --config double`.

use sluice_evaluator_sdk::{Amount, Answer, Charge, Error, Evaluator, OtherPods, Pod, ServeError, run};

struct Label {
    factor: i128,
}

impl Evaluator for Label {
    fn evaluate(&self, pod: &Pod, _others: &OtherPods) -> Result<Answer, Error> {
        let object = pod.object()?;
        let labels = object.metadata.labels.as_ref();
        let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        if has_ended || !labels.is_some_and(|labels| labels.contains_key("label-app")) {
            return Ok(Answer::NoMatch);
        }
        let native = pod.native()?;
        let times = |amount: &Amount| Amount::from_nanos(amount.nanos().saturating_mul(self.factor));
        Ok(Answer::from(&Charge::from_pairs(native.iter().map(|(key, amount)| (key.clone(), times(amount))))))
    }
}

fn main() -> Result<(), ServeError> {
    let triple = std::env::args().any(|argument| argument == "triple");
    run(Label { factor: if triple { 3 } else { 2 } })
}
