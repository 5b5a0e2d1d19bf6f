//! The status that an `Evaluator` should have.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_api::{EvaluatorShadow, EvaluatorShadowAmount, EvaluatorShadowTotal, EvaluatorStatus, names};
use sluice_engine::Quantity;
use sluice_evaluators::RuleEvaluator;
use sluice_gate::{MOST_SHADOWS, RuleFigures, ShadowAmount, ShadowFigures};
use sluice_index::Stated;

use super::{Object, Place};

/// What there is to say of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'f> {
    pub(super) place: Place,
    /// `None`: that is not known yet.
    pub(super) figures: Option<&'f RuleFigures>,
    /// Rules that are in force at a time.
    pub(super) most: usize,
}

/// The merge patch that brings the status up to date; `None` if it is, or cannot be read.
pub(super) fn patch(object: &Object, target: Target<'_>, now: Timestamp) -> Option<Value> {
    let stated = object.stated.as_deref()?;
    let said = match target.place {
        Place::Off | Place::TooMany | Place::TooManyShadows => EvaluatorStatus::default(),
        Place::InForce => match target.figures {
            None => EvaluatorStatus { shadow: None, ..stated.status.clone() },
            Some(figures) => EvaluatorStatus {
                matched: Some(number(figures.matched)),
                held: Some(number(figures.held)),
                ..EvaluatorStatus::default()
            },
        },
        Place::Shadow => match target.figures {
            None => EvaluatorStatus { held: None, ..stated.status.clone() },
            Some(figures) => EvaluatorStatus {
                matched: Some(number(figures.matched)),
                shadow: figures.shadow.as_ref().map(shadow),
                ..EvaluatorStatus::default()
            },
        },
    };
    let conditions = conditions(object, target, stated, now)?;
    let status = EvaluatorStatus { observed_generation: stated.generation, conditions, ..said };
    if status == stated.status {
        return None;
    }
    // What is absent is to go.
    Some(json!({
        "metadata": { "resourceVersion": stated.resource_version },
        "status": {
            "observedGeneration": status.observed_generation,
            "matched": status.matched,
            "held": status.held,
            "shadow": status.shadow,
            "conditions": status.conditions,
        },
    }))
}

fn shadow(figures: &ShadowFigures) -> EvaluatorShadow {
    let text = |amount: Quantity| Text(amount.to_string());
    let amount = |amount: &ShadowAmount| EvaluatorShadowAmount {
        namespace: (!amount.namespace.is_empty()).then(|| amount.namespace.to_string()),
        quota: amount.quota.name.to_string(),
        key: amount.key.clone(),
        hard: text(amount.hard),
        used: text(amount.used),
        enforced: text(amount.enforced),
    };
    let total = figures.total.iter();
    EvaluatorShadow {
        held: number(figures.held),
        total: total
            .map(|(key, change)| EvaluatorShadowTotal { key: key.clone(), change: text(*change) })
            .collect(),
        differences: number(figures.differences),
        largest: figures.largest.iter().map(amount).collect(),
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The conditions of others stay.
fn conditions(
    object: &Object,
    target: Target<'_>,
    stated: &Stated<EvaluatorStatus>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let now = Timestamp::from_second(now.as_second()).ok()?;
    let consistent = object.consistent.as_ref().filter(|_| target.place != Place::Off);
    let told = [
        Some((names::READY, ready(&object.rule, target))),
        consistent.map(|consistent| (names::CONSISTENT, agrees(consistent))),
    ];
    let ours = told.into_iter().flatten().map(|(kind, (is, reason, message))| {
        let status = if is { "True" } else { "False" };
        let known = stated.status.conditions.iter().find(|known| known.type_ == kind);
        let since = known.filter(|known| known.status == status).map(|known| known.last_transition_time.0);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: stated.generation,
            last_transition_time: Time(since.unwrap_or(now)),
        }
    });
    let is_others = |known: &&Condition| ![names::READY, names::CONSISTENT].contains(&&*known.type_);
    Some(stated.status.conditions.iter().filter(is_others).cloned().chain(ours).collect())
}

/// Whether a condition is true, its reason and its message.
type Says = (bool, &'static str, String);

fn ready(rule: &RuleEvaluator, target: Target<'_>) -> Says {
    match (target.place, rule.fault()) {
        (Place::Off, _) => (false, "Off", "spec.mode is Off: pods are charged as without it".to_owned()),
        (Place::TooMany, _) => {
            let message = format!(
                "not in force: {} older ones are, and no more can be beside the sidecars: delete one, or set its mode \
                 to Off",
                target.most
            );
            (false, "TooManyEvaluators", message)
        }
        (Place::TooManyShadows, _) => {
            let message = format!(
                "not evaluated: {MOST_SHADOWS} older ones are in the shadow, and no more can be: delete one, or set its \
                 mode to Off"
            );
            (false, "TooManyEvaluators", message)
        }
        (Place::Shadow, Some(fault)) => {
            (false, "RuleUnusable", format!("pods that it selects would be held: {fault}"))
        }
        (Place::Shadow, None) => {
            let message = "evaluated and charged nowhere: status.shadow says what it would charge".to_owned();
            (false, "Shadow", message)
        }
        (Place::InForce, Some(fault)) => {
            (false, "RuleUnusable", format!("new pods that it selects are held: {fault}"))
        }
        (Place::InForce, None) => (true, "InForce", "its rule is in force".to_owned()),
    }
}

fn agrees(consistent: &Result<(), Arc<str>>) -> Says {
    match consistent {
        Ok(()) => (true, "ExamplesHold", "the rule says of its examples what they say".to_owned()),
        Err(error) => (false, "ExampleContradicted", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use super::*;

    fn object(spec: &Value, status: EvaluatorStatus) -> Object {
        let (rule, consistent) = super::super::read_rule("a", spec);
        let stated = Stated { resource_version: Some("7".to_owned()), generation: Some(3), status };
        Object { created: None, spec: spec.clone(), rule, consistent, stated: Some(Arc::new(stated)) }
    }

    fn good() -> Value {
        json!({"cel": {"match": "true", "charge": {"example.com/a": "1"}}})
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn of(place: Place) -> Target<'static> {
        Target { place, figures: None, most: 16 }
    }

    fn written(patch: Option<Value>) -> EvaluatorStatus {
        serde_json::from_value(patch.unwrap()["status"].clone()).unwrap()
    }

    #[test]
    fn each_state_is_said_once() {
        let bad = json!({"cel": {"match": "pod.", "charge": {"example.com/a": "1"}}});
        for (spec, place, status, reason, said) in [
            (&good(), Place::InForce, "True", "InForce", "its rule is in force"),
            (
                &bad,
                Place::InForce,
                "False",
                "RuleUnusable",
                "new pods that it selects are held: spec.cel.match",
            ),
            (&bad, Place::Off, "False", "Off", "spec.mode is Off"),
            (&good(), Place::TooMany, "False", "TooManyEvaluators", "not in force: 16 older ones are"),
            (&good(), Place::TooManyShadows, "False", "TooManyEvaluators", "not evaluated: 4 older ones are"),
            (&good(), Place::Shadow, "False", "Shadow", "evaluated and charged nowhere: "),
            (
                &bad,
                Place::Shadow,
                "False",
                "RuleUnusable",
                "pods that it selects would be held: spec.cel.match",
            ),
        ] {
            let first = written(patch(&object(spec, EvaluatorStatus::default()), of(place), at(100)));
            let [condition] = &first.conditions[..] else { panic!("{first:?}") };
            assert_eq!((&*condition.status, &*condition.reason), (status, reason));
            assert!(condition.message.starts_with(said), "{}", condition.message);
            assert_eq!(patch(&object(spec, first), of(place), at(200)), None, "it is said already");
        }
    }

    #[test]
    fn since_when_it_is_so_stays() {
        let first = written(patch(&object(&good(), EvaluatorStatus::default()), of(Place::Off), at(100)));
        let known = object(&good(), first);
        let since = |place| written(patch(&known, of(place), at(200))).conditions[0].last_transition_time.0;
        assert_eq!((since(Place::TooMany), since(Place::InForce)), (at(100), at(200)));
    }

    #[test]
    fn figures_are_told_while_the_rule_is_in_force() {
        let some = RuleFigures { matched: 12, held: 3, shadow: None };
        let in_force = Target { figures: Some(&some), ..of(Place::InForce) };
        let first = written(patch(&object(&good(), EvaluatorStatus::default()), in_force, at(100)));
        assert_eq!((first.matched, first.held), (Some(12), Some(3)));
        let known = object(&good(), first);
        assert_eq!(patch(&known, in_force, at(200)), None, "nothing is written where nothing has changed");
        assert_eq!(patch(&known, of(Place::InForce), at(200)), None, "another leader does not know them yet");
        let off = patch(&known, Target { place: Place::Off, ..in_force }, at(200)).unwrap();
        assert_eq!((&off["status"]["matched"], &off["status"]["held"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn what_a_rule_in_the_shadow_would_charge_is_told_while_it_is_there() {
        let quantity = |text: &str| Quantity::parse(text).unwrap();
        let name: Arc<str> = "licences".into();
        let amount = |namespace: &str| ShadowAmount {
            namespace: namespace.into(),
            quota: sluice_gate::QuotaName {
                kind: sluice_engine::QuotaKind::Namespace,
                name: Arc::clone(&name),
            },
            key: "example.com/a".to_owned(),
            hard: quantity("10"),
            used: quantity("0"),
            enforced: quantity("12"),
        };
        let shadow = ShadowFigures {
            held: 2,
            total: vec![("requests.cpu".to_owned(), quantity("-1500m"))],
            differences: 40,
            largest: vec![amount("team"), amount("")],
        };
        let figures = RuleFigures { matched: 12, held: 0, shadow: Some(shadow) };
        let target = Target { figures: Some(&figures), ..of(Place::Shadow) };
        let patch_of = |status, target| patch(&object(&good(), status), target, at(100));
        let first = patch_of(EvaluatorStatus::default(), target).unwrap();
        let (of_team, of_cluster) = (json!({"namespace": "team"}), json!({}));
        let amounts = [of_team, of_cluster].map(|mut amount| {
            let fields = json!({"quota": "licences", "key": "example.com/a", "hard": "10", "used": "0", "enforced": "12"});
            amount.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            amount
        });
        assert_eq!(
            first["status"]["shadow"],
            json!({
                "held": 2, "differences": 40, "total": [{"key": "requests.cpu", "change": "-1500m"}], "largest": amounts,
            })
        );
        assert_eq!((&first["status"]["matched"], &first["status"]["held"]), (&json!(12), &Value::Null));
        let first = written(Some(first));
        assert_eq!(patch_of(first.clone(), target), None, "it is said already");
        assert_eq!(patch_of(first.clone(), of(Place::Shadow)), None, "another leader does not know it yet");
        for place in [Place::InForce, Place::Off] {
            assert_eq!(patch_of(first.clone(), of(place)).unwrap()["status"]["shadow"], Value::Null);
        }
    }

    #[test]
    fn examples_that_the_rule_contradicts_are_told() {
        let container = json!({ "name": "a", "resources": { "requests": { "cpu": "1500m" } } });
        let with = |charge: &str| {
            let example = json!({ "pod": { "spec": { "containers": [container] } }, "charge": { "example.com/a": charge } });
            json!({"cel": good()["cel"], "examples": [example]})
        };
        for (charge, status, reason, said) in [
            ("1", "True", "ExamplesHold", "the rule says of its examples what they say"),
            (
                "2",
                "False",
                "ExampleContradicted",
                "spec.examples[0].charge: the rule says example.com/a=1, the example says example.com/a=2: correct \
                 one of them",
            ),
        ] {
            let object = object(&with(charge), EvaluatorStatus::default());
            let first = written(patch(&object, of(Place::InForce), at(100)));
            let condition = first.conditions.iter().find(|it| it.type_ == names::CONSISTENT).unwrap();
            assert_eq!((&*condition.status, &*condition.reason, &*condition.message), (status, reason, said));
        }
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut status =
            written(patch(&object(&good(), EvaluatorStatus::default()), of(Place::InForce), at(100)));
        status.conditions[0].type_ = "Theirs".to_owned();
        let both = written(patch(&object(&good(), status), of(Place::InForce), at(100)));
        let kinds: Vec<_> = both.conditions.iter().map(|condition| &*condition.type_).collect();
        assert_eq!(kinds, ["Theirs", "Ready"]);
    }
}
