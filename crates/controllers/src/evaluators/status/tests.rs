//! What is said of each state.
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
    let (sidecar, spec) = (Sidecar::Unknown, &Value::Null);
    Target {
        name: "a",
        place,
        is_in_force: true,
        figures: None,
        most: 16,
        sidecar,
        p99: None,
        differs: None,
        spec,
        has_other_container: false,
    }
}

fn written(patch: Option<Value>) -> EvaluatorStatus {
    serde_json::from_value(patch.unwrap()["status"].clone()).unwrap()
}

#[test]
fn each_state_is_said_once() {
    let bad = json!({"cel": {"match": "pod.", "charge": {"example.com/a": "1"}}});
    for (spec, place, status, reason, said) in [
        (&good(), Place::InForce, "True", "InForce", "its rule is in force"),
        (&bad, Place::InForce, "False", "RuleUnusable", "new pods that it selects are held: spec.cel.match"),
        (&bad, Place::Off, "False", "Off", "spec.mode is Off"),
        (&good(), Place::TooMany, "False", "TooManyEvaluators", "not in force: 16 older ones are"),
        (&good(), Place::TooManyShadows, "False", "TooManyEvaluators", "not evaluated: 4 older ones are"),
        (&good(), Place::Shadow, "False", "Shadow", "evaluated and charged nowhere: "),
        (&bad, Place::Shadow, "False", "RuleUnusable", "pods that it selects would be held: spec.cel.match"),
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
            "not in force: there is no sidecar a: name its image in spec.sidecar, or its container in spec.conf",
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
fn of_a_container_that_it_names_is_said_why_it_is_not_the_one_that_is_asked() {
    let said = |spec: &Value, target: Target<'_>| {
        let status = written(patch(&object(spec, EvaluatorStatus::default()), target, at(100)));
        status.conditions[0].message.clone()
    };
    let names = json!({"sidecar": {"image": "i"}});
    let of_secret = json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "sluice-ca", "key": "k"}}});
    let refused = json!({"sidecar": {"image": "i", "env": [of_secret]}});
    let none = |spec| Target { spec, ..of(Place::NoSidecar) };
    assert!(
        said(&names, none(&names)).starts_with("not in force yet: pods are charged as without it until its")
    );
    let why =
        "not in force: its container may not run: spec.sidecar.env[0].valueFrom: it is not given: remove it";
    assert!(said(&refused, none(&refused)).starts_with(why), "{}", said(&refused, none(&refused)));
    let works = Target { spec: &names, sidecar: Sidecar::Works, ..of(Place::InForce) };
    assert_eq!(said(&names, works), "the sidecar answers, and is asked as it says");
    let of_aaq = Target { has_other_container: true, ..works };
    assert!(said(&names, of_aaq).contains("it is not the one of spec.sidecar.image"));
}

#[test]
fn how_long_answers_take_is_written_with_the_rest_and_is_no_reason_to_write() {
    let figures = |matched| RuleFigures { matched, ..RuleFigures::default() };
    let (one, two) = (figures(1), figures(2));
    let target = |figures, p99| Target { figures: Some(figures), p99, ..of(Place::InForce) };
    let first = written(patch(&object(&good(), EvaluatorStatus::default()), target(&one, None), at(1)));
    assert_eq!(first.p99, None);
    let known = object(&good(), first);
    assert_eq!(patch(&known, target(&one, Some("1.2ms")), at(2)), None);
    let second = written(patch(&known, target(&two, Some("1.3ms")), at(3)));
    assert_eq!(second.p99.as_deref(), Some("1.3ms"));
    let known = object(&good(), second);
    assert_eq!(patch(&known, target(&two, None), at(4)), None, "a new leader has asked nothing yet");
    let off = patch(&known, of(Place::Off), at(5)).unwrap();
    assert_eq!(off["status"]["p99"], Value::Null, "what is not evaluated takes no time");
}

#[test]
fn answers_that_differ_are_said_and_so_is_their_end() {
    let policy = json!({"sidecar": {}});
    let works = Target { sidecar: Sidecar::Works, ..of(Place::InForce) };
    let said = |status: &EvaluatorStatus| {
        let of = status.conditions.iter().find(|it| it.type_ == names::CONSISTENT);
        of.map(|of| (of.status.clone(), of.reason.clone()))
    };
    let mut status = EvaluatorStatus::default();
    let mut told = Vec::new();
    for (second, differs) in [(1, None), (2, Some("it said a, then b")), (3, None)] {
        status = written(patch(&object(&policy, status), Target { differs, ..works }, at(second)));
        told.push(said(&status));
    }
    let is = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    assert_eq!(told, [None, is("False", "AnswersDiffer"), is("True", "AnswersAgree")]);
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
    let to_be_off = Target { place: Place::Off, ..in_force };
    let before = Target { is_in_force: false, ..to_be_off };
    assert_eq!(patch(&known, before, at(200)), None, "pods are charged by it still");
    let off = patch(&known, to_be_off, at(200)).unwrap();
    assert_eq!((&off["status"]["matched"], &off["status"]["held"]), (&Value::Null, &Value::Null));
}

#[test]
fn what_a_rule_in_the_shadow_would_charge_is_told_while_it_is_there() {
    let quantity = |text: &str| Quantity::parse(text).unwrap();
    let name: Arc<str> = "licences".into();
    let amount = |namespace: &str| ShadowAmount {
        namespace: namespace.into(),
        quota: sluice_gate::QuotaName { kind: sluice_engine::QuotaKind::Namespace, name: Arc::clone(&name) },
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
        let fields =
            json!({"quota": "licences", "key": "example.com/a", "hard": "10", "used": "0", "enforced": "12"});
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
