//! The verdict on quota specs against the rules of Kubernetes, and limits on hostile sizes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod common;

use common::{cases, items, quantity, text};
use serde_json::Value;
use sluice_engine::quota_spec::{
    FieldErrorKind, RawQuotaSpec, ScopeRequirementText, compile, validate, validate_update,
};
use sluice_engine::resource::{KeyKind, Resource};
use sluice_engine::scope::ScopeFacts;

fn texts(value: &Value, path: &str) -> Vec<String> {
    items(value, path).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn spec(case: &Value) -> RawQuotaSpec {
    let hard = case["hard"].as_object().unwrap().iter();
    let selector = case["selector"].as_array().map(|requirements| {
        let requirement = |r: &Value| ScopeRequirementText {
            scope_name: text(r, "scopeName").unwrap().to_owned(),
            operator: text(r, "operator").unwrap().to_owned(),
            values: texts(r, "/values"),
        };
        requirements.iter().map(requirement).collect()
    });
    RawQuotaSpec {
        hard: hard.map(|(k, v)| (k.clone(), quantity(v.as_str().unwrap()))).collect(),
        scopes: texts(case, "/scopes"),
        scope_selector: selector,
    }
}

fn hard(entries: &[(&str, &str)]) -> RawQuotaSpec {
    let hard = entries.iter().map(|(key, amount)| ((*key).to_owned(), quantity(amount))).collect();
    RawQuotaSpec { hard, ..RawQuotaSpec::default() }
}

#[test]
fn specs_are_judged_as_kubernetes_does() {
    let cases = cases("quota_spec.json");
    assert!(cases.len() > 100);
    for case in cases {
        let spec = spec(&case);
        let found: Vec<String> = validate(&spec).iter().map(ToString::to_string).collect();
        let expected = texts(&case, "/errors");
        assert_eq!(found.len(), expected.len(), "{}: {spec:?}: {found:?}", case["why"]);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.starts_with(expected), "{}: {found} is not {expected}", case["why"]);
        }
        assert_eq!(compile(&spec).is_ok(), expected.is_empty(), "{}", case["why"]);
    }
}

#[test]
fn scopes_cannot_change_but_their_order_can() {
    let with = |scopes: &[&str]| RawQuotaSpec {
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        ..hard(&[("pods", "1")])
    };
    let old = with(&["Terminating", "PriorityClass"]);
    assert_eq!(validate_update(&with(&["PriorityClass", "Terminating"]), &old), []);
    let errors = validate_update(&with(&["Terminating"]), &old);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, [r#"spec.scopes: Invalid value: ["Terminating"]: field is immutable"#]);
}

#[test]
fn a_compiled_quota_keeps_the_keys_of_the_user() {
    let quota = compile(&hard(&[("requests.cpu", "2"), ("cpu", "1"), ("services", "1")])).unwrap();
    let keys: Vec<&str> = quota.entries.iter().map(|entry| entry.key.as_ref()).collect();
    assert_eq!(keys, ["cpu", "requests.cpu", "services"]);
    assert!(quota.entries[..2].iter().all(|entry| entry.resource == Resource::Cpu));
    assert_eq!(quota.entries[1].hard, quantity("2"));
    assert_eq!(quota.entries[2].kind, KeyKind::Other);
    assert!(quota.scopes.is_empty());
}

#[test]
fn scopes_and_selector_must_both_match() {
    let spec = RawQuotaSpec {
        scopes: vec!["Terminating".to_owned()],
        scope_selector: Some(vec![ScopeRequirementText {
            scope_name: "PriorityClass".to_owned(),
            operator: "In".to_owned(),
            values: vec!["low".to_owned(), "high".to_owned()],
        }]),
        ..hard(&[("pods", "1")])
    };
    let scopes = compile(&spec).unwrap().scopes;
    let facts = |terminating, class: &str| ScopeFacts {
        terminating,
        priority_class: Some(class.into()),
        ..ScopeFacts::default()
    };
    assert!(scopes.matches(&facts(true, "high")));
    assert!(!scopes.matches(&facts(false, "high")));
    assert!(!scopes.matches(&facts(true, "other")));
}

#[test]
fn hostile_sizes_are_refused_once_with_the_field_and_the_limit() {
    let requirement = |values: usize| ScopeRequirementText {
        scope_name: "PriorityClass".to_owned(),
        operator: "In".to_owned(),
        values: (0..values).map(|n| n.to_string()).collect(),
    };
    let many_names = RawQuotaSpec {
        hard: (0..5_000).map(|n| (format!("count/n{n}"), quantity("1"))).collect(),
        ..RawQuotaSpec::default()
    };
    let many_scopes = RawQuotaSpec {
        scopes: vec!["BestEffort".to_owned(); 1_000],
        scope_selector: Some(vec![requirement(1); 1_000]),
        ..RawQuotaSpec::default()
    };
    let many_values =
        RawQuotaSpec { scope_selector: Some(vec![requirement(10_000)]), ..RawQuotaSpec::default() };
    let selector = "spec.scopeSelector.matchExpressions";
    for (spec, expected) in [
        (many_names, vec!["spec.hard: Too many: 5000: must have at most 1024 items".to_owned()]),
        (
            many_scopes,
            vec![
                "spec.scopes: Too many: 1000: must have at most 64 items".to_owned(),
                format!("{selector}: Too many: 1000: must have at most 64 items"),
            ],
        ),
        (many_values, vec![format!("{selector}.values: Too many: 10000: must have at most 1024 items")]),
    ] {
        let errors = validate(&spec);
        assert!(errors.iter().all(|error| error.kind == FieldErrorKind::TooMany));
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn hostile_texts_are_not_repeated_whole() {
    let long = "ä\n\"x".repeat(300_000);
    let spec = RawQuotaSpec { scopes: vec![long.clone()], ..hard(&[(&long, "-1")]) };
    for error in validate(&spec) {
        let error = error.to_string();
        assert!(error.len() < 2_500, "{} bytes", error.len());
    }
}
