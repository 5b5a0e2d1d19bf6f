//! The status that an `Evaluator` should have.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_api::{EvaluatorShadow, EvaluatorShadowAmount, EvaluatorShadowTotal, EvaluatorStatus, names};
use sluice_engine::Quantity;
use sluice_evaluators::Failure;
use sluice_gate::{MOST_SHADOWS, RuleFigures, ShadowAmount, ShadowFigures};
use sluice_index::Stated;

use super::{Kind, Object, Place};

/// What there is to say of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'f> {
    pub(super) name: &'f str,
    pub(super) place: Place,
    /// `None`: that is not known yet.
    pub(super) figures: Option<&'f RuleFigures>,
    /// Rules that are in force at a time.
    pub(super) most: usize,
    pub(super) sidecar: Sidecar<'f>,
}

/// What is known of the sidecar that an object is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sidecar<'f> {
    /// It is about none, or nothing is known yet.
    Unknown,
    /// It answers.
    Works,
    /// It does not.
    Fails(&'f Failure),
}

/// The merge patch that brings the status up to date; `None` if it is, or cannot be read.
pub(super) fn patch(object: &Object, target: Target<'_>, now: Timestamp) -> Option<Value> {
    let stated = object.stated.as_deref()?;
    let is_asked =
        matches!(object.kind, Kind::Policy(_)) && matches!(target.place, Place::InForce | Place::Shadow);
    if is_asked && target.sidecar == Sidecar::Unknown {
        // Another leader has just begun to look for it: what was said stays until it is known.
        return None;
    }
    let said = match target.place {
        Place::Off | Place::TooMany | Place::TooManyShadows | Place::NoSidecar => EvaluatorStatus::default(),
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
        Some((names::READY, ready(&object.kind, target))),
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

fn ready(kind: &Kind, target: Target<'_>) -> Says {
    let is_policy = matches!(kind, Kind::Policy(_));
    let unusable = if is_policy { "PolicyUnusable" } else { "RuleUnusable" };
    let name = target.name;
    match (target.place, kind.fault(), target.sidecar) {
        (Place::Off, _, _) => (false, "Off", "spec.mode is Off: pods are charged as without it".to_owned()),
        (Place::NoSidecar, _, _) => {
            let message = format!(
                "not in force: there is no sidecar {name}: name its container in spec.configuration.sidecarEvaluators of \
                 the AAQ, or give the controller --evaluator={name}=DIRECTORY"
            );
            (false, "NoSidecar", message)
        }
        (Place::TooMany, _, _) => {
            let message = format!(
                "not in force: {} older ones are, and no more can be beside the sidecars: delete one, or set its mode \
                 to Off",
                target.most
            );
            (false, "TooManyEvaluators", message)
        }
        (Place::TooManyShadows, _, _) => {
            let message = format!(
                "not evaluated: {MOST_SHADOWS} older ones are in the shadow, and no more can be: delete one, or set its \
                 mode to Off"
            );
            (false, "TooManyEvaluators", message)
        }
        (Place::Shadow, Some(fault), _) => {
            (false, unusable, format!("pods that it selects would be held: {fault}"))
        }
        (Place::InForce, Some(fault), _) => {
            (false, unusable, format!("new pods that it selects are held: {fault}"))
        }
        (_, None, Sidecar::Fails(failure)) => (false, "SidecarFails", format!("the sidecar {failure}")),
        (Place::Shadow, None, _) => {
            let message = "evaluated and charged nowhere: status.shadow says what it would charge".to_owned();
            (false, "Shadow", message)
        }
        (Place::InForce, None, _) if is_policy => {
            (true, "InForce", "the sidecar answers, and is asked as it says".to_owned())
        }
        (Place::InForce, None, _) => (true, "InForce", "its rule is in force".to_owned()),
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
        let (kind, consistent) = super::super::read_spec("a", spec);
        let stated = Stated { resource_version: Some("7".to_owned()), generation: Some(3), status };
        Object { created: None, spec: spec.clone(), kind, consistent, stated: Some(Arc::new(stated)) }
    }

    fn good() -> Value {
        json!({"cel": {"match": "true", "charge": {"example.com/a": "1"}}})
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn of(place: Place) -> Target<'static> {
        Target { name: "a", place, figures: None, most: 16, sidecar: Sidecar::Unknown }
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
    fn of_a_sidecar_is_said_whether_it_is_there_and_answers() {
        let policy = json!({"sidecar": {}});
        let bad = json!({"sidecar": {}, "keys": ["storage"]});
        let absent = Failure::NotThere(sluice_evaluators::discovery::Absence::NoSocket);
        let fails = Sidecar::Fails(&absent);
        for (spec, place, sidecar, status, reason, said) in [
            (
                &policy,
                Place::InForce,
                Sidecar::Works,
                "True",
                "InForce",
                "the sidecar answers, and is asked as it says",
            ),
            (
                &policy,
                Place::InForce,
                fails,
                "False",
                "SidecarFails",
                "the sidecar is not there: its directory holds no",
            ),
            (&policy, Place::Shadow, Sidecar::Works, "False", "Shadow", "evaluated and charged nowhere: "),
            (&policy, Place::Shadow, fails, "False", "SidecarFails", "the sidecar is not there: "),
            (
                &bad,
                Place::InForce,
                fails,
                "False",
                "PolicyUnusable",
                "new pods that it selects are held: spec.keys[0]: ",
            ),
            (
                &policy,
                Place::NoSidecar,
                Sidecar::Unknown,
                "False",
                "NoSidecar",
                "not in force: there is no sidecar a: name its container in spec.configuration.sidecarEvaluators",
            ),
            (&policy, Place::Off, Sidecar::Unknown, "False", "Off", "spec.mode is Off"),
        ] {
            let target = Target { sidecar, ..of(place) };
            let first = written(patch(&object(spec, EvaluatorStatus::default()), target, at(100)));
            let [condition] = &first.conditions[..] else { panic!("{first:?}") };
            assert_eq!((&*condition.status, &*condition.reason), (status, reason));
            assert!(condition.message.starts_with(said), "{}", condition.message);
            assert_eq!(patch(&object(spec, first.clone()), target, at(200)), None, "it is said already");
            if [Place::InForce, Place::Shadow].contains(&place) {
                let unknown = Target { sidecar: Sidecar::Unknown, ..target };
                assert_eq!(
                    patch(&object(spec, first), unknown, at(200)),
                    None,
                    "another leader does not know it yet"
                );
            }
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
