//! The status that an `Evaluator` should have.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_api::{EvaluatorStatus, names};
use sluice_evaluators::RuleEvaluator;
use sluice_index::Stated;

use super::Place;

/// The merge patch that brings the status up to date; `None` if it is. `most`: rules that are in force at a time.
pub(super) fn patch(
    stated: &Stated<EvaluatorStatus>,
    (rule, place): (&RuleEvaluator, Place),
    most: usize,
    now: Timestamp,
) -> Option<Value> {
    let (is, reason, message) = says(rule, place, most);
    let status = if is { "True" } else { "False" };
    let ready = stated.status.conditions.iter().find(|condition| condition.type_ == names::READY);
    let since = ready.filter(|known| known.status == status).map(|known| known.last_transition_time.0);
    let condition = Condition {
        type_: names::READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: stated.generation,
        last_transition_time: Time(since.or_else(|| Timestamp::from_second(now.as_second()).ok())?),
    };
    if ready == Some(&condition) && stated.status.observed_generation == stated.generation {
        return None;
    }
    let others = stated.status.conditions.iter().filter(|known| known.type_ != names::READY).cloned();
    let conditions: Vec<Condition> = others.chain([condition]).collect();
    Some(json!({
        "metadata": { "resourceVersion": stated.resource_version },
        "status": { "observedGeneration": stated.generation, "conditions": conditions },
    }))
}

fn says(rule: &RuleEvaluator, place: Place, most: usize) -> (bool, &'static str, String) {
    match (place, rule.fault()) {
        (Place::Off, _) => (false, "Off", "spec.mode is Off: pods are charged as without it".to_owned()),
        (Place::TooMany, _) => {
            let message = format!(
                "not in force: {most} older ones are, and no more can be beside the sidecars: delete one, or set its \
                mode to Off"
            );
            (false, "TooManyEvaluators", message)
        }
        (Place::InForce, Some(fault)) => {
            (false, "RuleUnusable", format!("new pods that it selects are held: {fault}"))
        }
        (Place::InForce, None) => (true, "InForce", "its rule is in force".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;

    fn stated(status: EvaluatorStatus) -> Stated<EvaluatorStatus> {
        Stated { resource_version: Some("7".to_owned()), generation: Some(3), status }
    }

    #[test]
    fn each_state_is_said_once() {
        let good = json!({"cel": {"match": "true", "charge": {"example.com/a": "1"}}});
        let bad = json!({"cel": {"match": "pod.", "charge": {"example.com/a": "1"}}});
        let at = |second| Timestamp::from_second(second).unwrap();
        for (spec, place, status, reason, said) in [
            (&good, Place::InForce, "True", "InForce", "its rule is in force"),
            (
                &bad,
                Place::InForce,
                "False",
                "RuleUnusable",
                "new pods that it selects are held: spec.cel.match",
            ),
            (&bad, Place::Off, "False", "Off", "spec.mode is Off"),
            (&good, Place::TooMany, "False", "TooManyEvaluators", "not in force: 16 older ones are"),
        ] {
            let rule = RuleEvaluator::read("a", spec);
            let written = patch(&stated(EvaluatorStatus::default()), (&rule, place), 16, at(100)).unwrap();
            let written: EvaluatorStatus = serde_json::from_value(written["status"].clone()).unwrap();
            let condition = &written.conditions[0];
            assert_eq!((&*condition.status, &*condition.reason), (status, reason));
            assert!(condition.message.starts_with(said), "{}", condition.message);
            assert_eq!(patch(&stated(written), (&rule, place), 16, at(200)), None, "it is said already");
        }
    }

    #[test]
    fn since_when_it_is_so_stays() {
        let good = json!({"cel": {"match": "true", "charge": {"example.com/a": "1"}}});
        let rule = RuleEvaluator::read("a", &good);
        let at = |second| Timestamp::from_second(second).unwrap();
        let written = patch(&stated(EvaluatorStatus::default()), (&rule, Place::Off), 16, at(100)).unwrap();
        let status: EvaluatorStatus = serde_json::from_value(written["status"].clone()).unwrap();
        let known = Stated { generation: Some(4), ..stated(status) };
        let since = |patch: Value| patch["status"]["conditions"][0]["lastTransitionTime"].clone();
        let (still, other) = (Place::TooMany, Place::InForce);
        assert_eq!(since(patch(&known, (&rule, still), 16, at(200)).unwrap()), "1970-01-01T00:01:40Z");
        assert_eq!(since(patch(&known, (&rule, other), 16, at(200)).unwrap()), "1970-01-01T00:03:20Z");
    }
}
