//! What a label selector selects, and which are none.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};
use sluice_index::read_selector;

fn read(selector: Value) -> Result<Selector, Vec<String>> {
    let selector: LabelSelector = serde_json::from_value(selector).unwrap();
    read_selector("spec.namespaceSelector", selector)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn every_form_selects_by_its_meaning() {
    let sets = [
        ("a", vec![("team", "a"), ("stage", "prod")]),
        ("b", vec![("team", "b")]),
        ("empty", vec![("team", "")]),
        ("none", vec![]),
    ];
    let one = |operator: &str, values: Value| {
        json!({
            "matchExpressions": [{ "key": "team", "operator": operator, "values": values }],
        })
    };
    for (selector, selected) in [
        (json!({}), vec!["a", "b", "empty", "none"]),
        (json!({ "matchLabels": {}, "matchExpressions": [] }), vec!["a", "b", "empty", "none"]),
        (json!({ "matchLabels": { "team": "a" } }), vec!["a"]),
        (json!({ "matchLabels": { "team": "a", "stage": "test" } }), vec![]),
        (json!({ "matchLabels": { "team": "" } }), vec!["empty"]),
        (one("In", json!(["a", "b"])), vec!["a", "b"]),
        (one("In", json!([""])), vec!["empty"]),
        (one("NotIn", json!(["a"])), vec!["b", "empty", "none"]),
        (one("Exists", json!(null)), vec!["a", "b", "empty"]),
        (one("Exists", json!([])), vec!["a", "b", "empty"]),
        (one("DoesNotExist", json!(null)), vec!["none"]),
        (
            json!({
                "matchLabels": { "stage": "prod" },
                "matchExpressions": [{ "key": "team", "operator": "NotIn", "values": ["b"] }],
            }),
            vec!["a"],
        ),
    ] {
        let read = read(selector.clone()).unwrap();
        let matches = |labels: &[(&str, &str)]| {
            let labels: BTreeMap<_, _> =
                labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            read.matches(&labels)
        };
        let found: Vec<_> =
            sets.iter().filter(|(_, labels)| matches(labels)).map(|(name, _)| *name).collect();
        assert_eq!(found, selected, "{selector}");
    }
}

#[test]
fn what_the_api_server_refuses_is_refused_by_field() {
    let one = |expression: Value| json!({ "matchExpressions": [{ "key": "ok", "operator": "Exists" }, expression] });
    let long = "a".repeat(64);
    for (selector, start) in [
        (
            one(json!({ "key": "a", "operator": "Sometimes" })),
            "matchExpressions[1].operator: Invalid value: \"Sometimes\": not a valid",
        ),
        (
            one(json!({ "key": "a", "operator": "in", "values": ["a"] })),
            "matchExpressions[1].operator: Invalid value",
        ),
        (one(json!({ "key": "a", "operator": "" })), "matchExpressions[1].operator: Invalid value: \"\""),
        (
            one(json!({ "key": "a", "operator": "In" })),
            "matchExpressions[1].values: Required value: must be specified",
        ),
        (
            one(json!({ "key": "a", "operator": "NotIn", "values": [] })),
            "matchExpressions[1].values: Required value",
        ),
        (
            one(json!({ "key": "a", "operator": "Exists", "values": ["b"] })),
            "matchExpressions[1].values: Forbidden: may not",
        ),
        (
            one(json!({ "key": "a", "operator": "DoesNotExist", "values": [""] })),
            "matchExpressions[1].values: Forbidden",
        ),
        (one(json!({ "key": "", "operator": "Exists" })), "matchExpressions[1].key: Invalid value: \"\""),
        (
            one(json!({ "key": "a b", "operator": "Exists" })),
            "matchExpressions[1].key: Invalid value: \"a b\"",
        ),
        (one(json!({ "key": "a/b/c", "operator": "Exists" })), "matchExpressions[1].key: Invalid value"),
        (
            one(json!({ "key": "A.example/b", "operator": "Exists" })),
            "matchExpressions[1].key: Invalid value",
        ),
        (
            one(json!({ "key": "a", "operator": "In", "values": ["b", "-c"] })),
            "matchExpressions[1].values[1]: Invalid value: \"-c\"",
        ),
        (
            one(json!({ "key": "a", "operator": "In", "values": [long] })),
            "matchExpressions[1].values[0]: Invalid value",
        ),
        (json!({ "matchLabels": { "a/": "b" } }), "matchLabels: Invalid value: \"a/\": must be a label key"),
        (
            json!({ "matchLabels": { "a": "b/c" } }),
            "matchLabels: Invalid value: \"b/c\": must be a label value",
        ),
    ] {
        let errors = read(selector.clone()).unwrap_err();
        assert_eq!(errors.len(), 1, "{selector}: {errors:?}");
        let start = format!("spec.namespaceSelector.{start}");
        assert!(errors.iter().all(|error| error.starts_with(&start)), "{selector}: {errors:?}");
    }
    let all = json!({ "matchLabels": { "": "?" }, "matchExpressions": [{ "key": "?", "operator": "In" }] });
    assert_eq!(read(all).unwrap_err().len(), 4, "all that is wrong is said at once");
}
