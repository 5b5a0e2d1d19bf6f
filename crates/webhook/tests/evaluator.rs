//! Evaluators: a rule that can be compiled, and that says what its examples say.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{judge, judge_with, review};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_index::EvaluatorWire;
use sluice_webhook::endpoints::evaluator_validate;
use sluice_webhook::{SeenEvaluators, Settings, Verdict};

fn evaluator(spec: Value) -> Value {
    json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "Evaluator", "metadata": { "name": "licence" }, "spec": spec,
    })
}

/// A licence for each begun core of what runs this image.
fn licence() -> Value {
    json!({
        "cel": {
            "match": "pod.spec.containers.exists(c, c.image.startsWith('registry.example/oracle'))",
            "charge": { "example.com/license": "native['requests.cpu'].ceil()" },
        },
        "examples": [
            { "pod": pod("registry.example/oracle:19", "1500m"), "charge": { "example.com/license": 2 } },
            { "pod": pod("registry.example/web:1", "4") },
        ],
    })
}

fn pod(image: &str, cpu: &str) -> Value {
    json!({ "spec": { "containers": [{ "name": "a", "image": image, "resources": { "requests": { "cpu": cpu } } }] } })
}

fn create(spec: Value) -> Verdict {
    judge(evaluator_validate, &review("Evaluator", "CREATE", "admin", &evaluator(spec), &Value::Null))
}

fn update(old: Value, new: Value) -> Verdict {
    judge(evaluator_validate, &review("Evaluator", "UPDATE", "admin", &evaluator(new), &evaluator(old)))
}

/// The rule with one field changed.
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = licence();
    *spec.pointer_mut(pointer).unwrap() = value;
    spec
}

#[rstest]
#[case::rule(licence())]
#[case::without_examples(json!({ "cel": licence()["cel"] }))]
#[case::amount_of_another_form(with("/examples/0/charge", json!({ "example.com/license": "2000m" })))]
fn what_is_accepted(#[case] spec: Value) {
    let verdict = create(spec);
    assert_eq!((verdict.allowed, verdict.code), (true, 202), "{}", verdict.message);
}

#[test]
fn what_is_refused_and_why() {
    let said = [
        with("/cel/match", json!("object.spec.hostNetwork")),
        with("/cel/charge", json!({ "example.com/license": "native['requests.cpu'].round()" })),
        with("/cel/match", json!("pod.spec.containers[0].resources.requests.cpu > 1")),
        with("/examples/0/charge", json!({ "example.com/license": "3" })),
        with("/examples/0/charge", json!({})),
        with(
            "/examples/1",
            json!({ "pod": pod("registry.example/web:1", "4"), "charge": { "example.com/license": "4" } }),
        ),
        with("/examples/0/charge", json!({ "example.com/license": "many" })),
        with("/examples/0/pod", json!({ "spec": { "containers": 1 } })),
        with("/examples/0/pod", pod("registry.example/oracle:19", "many")),
    ]
    .map(|spec| {
        let verdict = create(spec);
        assert_eq!((verdict.allowed, verdict.code), (false, 403), "{}", verdict.message);
        verdict.message
    });
    insta::assert_snapshot!(said.join("\n"), @r"
    spec.cel.match: 1:1: there is no variable object: use pod and native, and within exists, all, filter and map their elements
    spec.cel.charge[example.com/license]: 1:29: there is no function round: use ceil(), or int(x)
    spec.examples[0]: such a pod would be held: the rule has no answer about this pod: spec.cel.match: 1:47: > cannot be used between a text and an integer: write quantity() around the text
    spec.examples[0].charge: the rule says example.com/license=2, the example says example.com/license=3: correct one of them
    spec.examples[0].charge: the rule says example.com/license=2, the example says that it is not about this pod: correct one of them
    spec.examples[1].charge: the rule says that it is not about this pod, the example says example.com/license=4: correct one of them
    spec.examples[0].charge[example.com/license]: parsing quantity: expected a number with an optional suffix, like 500m, 1.5 or 2Gi
    spec.examples[0].pod: it cannot be read as a pod: invalid type: integer `1`, expected a sequence
    spec.examples[0].pod: spec.containers[a].resources.requests[cpu]: parsing quantity: expected a number with an optional suffix, like 500m, 1.5 or 2Gi: no quantity that can be counted
    ");
}

#[test]
fn what_is_wrong_by_todays_rules_can_be_labelled_switched_off_and_deleted() {
    let wrong = with("/cel/match", json!("object"));
    assert!(update(wrong.clone(), wrong.clone()).allowed);
    let mut off = wrong.clone();
    off["mode"] = json!("Off");
    assert!(update(wrong.clone(), off.clone()).allowed);
    assert_eq!(update(off, wrong.clone()).code, 403);
    let delete = review("Evaluator", "DELETE", "admin", &Value::Null, &evaluator(wrong));
    assert!(judge(evaluator_validate, &delete).allowed);
}

#[test]
fn selectors_are_those_that_can_be_evaluated() {
    let mut spec = licence();
    spec["podSelector"] = json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] });
    let verdict = create(spec);
    assert_eq!(verdict.code, 403);
    assert!(
        verdict.message.starts_with("spec.podSelector.matchExpressions[0].values: "),
        "{}",
        verdict.message
    );
}

#[rstest]
#[case::bare(json!({ "sidecar": {} }))]
#[case::whole(json!({
    "mode": "Shadow", "podSelector": { "matchLabels": { "app": "db" } }, "namespaceSelector": {}, "strategy": "Retain",
    "floor": "None", "keys": ["cpu", "example.com/license"], "onFailure": "CountNatively", "revision": "2026-11-28",
    "sidecar": { "timeout": "250ms", "concurrency": 32, "otherPods": "None" },
}))]
fn policies_of_sidecars_that_are_accepted(#[case] spec: Value) {
    let verdict = create(spec);
    assert_eq!((verdict.allowed, verdict.code), (true, 202), "{}", verdict.message);
}

/// Of other fields than these the schema has none, and what else cannot run it refuses.
#[test]
fn containers_of_sidecars_that_are_refused_and_why() {
    let container = json!({
        "image": "i", "args": ["-v"], "env": [{ "name": "A", "value": "a" }],
        "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
    });
    assert!(create(json!({ "sidecar": container })).allowed);
    let named = |name: &str| {
        let mut evaluator = evaluator(json!({ "sidecar": { "image": "i" } }));
        evaluator["metadata"]["name"] = json!(name);
        judge(evaluator_validate, &review("Evaluator", "CREATE", "admin", &evaluator, &Value::Null)).message
    };
    let long = "a".repeat(41);
    let names = ["a.b", "sluice-controller", "aaq-controller", "refused-0", &long].map(named);
    insta::assert_snapshot!(names.join("\n"), @"
    metadata.name: it has to be 1 to 63 lower case letters, digits and hyphens
    metadata.name: sluice-controller is the controller's own container: choose another
    metadata.name: aaq-controller is the controller's own container: choose another
    metadata.name: a name does not begin with refused-: choose another
    metadata.name: it has more than 40 characters: choose another
    ");
}

#[test]
fn a_container_that_would_have_no_place_is_refused() {
    let of = |name: String| -> EvaluatorWire {
        let spec = json!({ "sidecar": { "image": "i" } });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
    };
    let verdict = |sidecar: &str, others: usize, mode: &str| {
        let evaluators: SeenEvaluators = (0..others).map(|n| of(format!("e{n}"))).collect();
        let sidecars = [sidecar.to_owned()].into();
        let settings = Settings { sidecars, evaluators: evaluators.into(), ..Settings::new("sluice-system") };
        let spec = json!({ "mode": mode, "sidecar": { "image": "i" } });
        let request = review("Evaluator", "CREATE", "admin", &evaluator(spec), &Value::Null);
        judge_with(evaluator_validate, &request, &settings)
    };
    assert!(verdict("of-aaq", 14, "Enforce").allowed);
    assert!(verdict("of-aaq", 15, "Off").allowed);
    assert!(verdict("e0", 15, "Enforce").allowed, "of two with one name one runs");
    let refused = verdict("of-aaq", 15, "Enforce");
    assert_eq!(refused.code, 403);
    assert!(
        refused.message.starts_with("spec.sidecar.image: 16 containers of evaluators run"),
        "{}",
        refused.message
    );
}

#[test]
fn policies_of_sidecars_that_are_refused_and_why() {
    let said = [
        json!({}),
        json!({ "sidecar": {}, "cel": licence()["cel"] }),
        json!({ "sidecar": {}, "examples": licence()["examples"] }),
        json!({ "sidecar": {}, "keys": ["pods", "storage"] }),
        json!({ "sidecar": {}, "keys": ["a b"] }),
        json!({ "sidecar": {}, "keys": [] }),
        json!({ "sidecar": { "timeout": "11s" } }),
        json!({ "sidecar": { "timeout": "1m" } }),
        json!({ "sidecar": { "concurrency": 0 } }),
        json!({ "sidecar": {}, "podSelector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } }),
        json!({ "cel": licence()["cel"], "keys": ["pods"] }),
        json!({ "cel": licence()["cel"], "onFailure": "Hold" }),
    ]
    .map(|spec| {
        let verdict = create(spec);
        assert_eq!((verdict.allowed, verdict.code), (false, 403), "{}", verdict.message);
        verdict.message
    });
    insta::assert_snapshot!(said.join("\n"), @r#"
    spec.cel: it is not there: write a rule, or the policy of a sidecar with sidecar: {}
    spec.cel: spec.sidecar is there too: remove one of them
    spec.examples: no sidecar is asked at admission: remove them, and try it by sluice evaluator check
    spec.keys[1]: no quota limits pods by "storage": write a key like requests.cpu or example.com/license
    spec.keys[0]: no quota limits pods by "a b": write a key like requests.cpu or example.com/license
    spec.keys: it is empty: name a key, or remove it, so that any may be charged
    spec.sidecar.timeout: "11s" is no time from 50ms to 10s: write one like 500ms or 2s
    spec.sidecar.timeout: "1m" is no time from 50ms to 10s: write one like 500ms or 2s
    spec.sidecar.concurrency: 0 is not from 1 to 32: write one that is
    spec.podSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', use Exists or DoesNotExist for any value
    spec.keys: it is of sidecars: remove it
    spec.onFailure: it is of sidecars: remove it
    "#);
}
