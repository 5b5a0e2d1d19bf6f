//! Charges, scopes and mandatory amounts of pods against Kubernetes' evaluator.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod common;

use std::collections::BTreeMap;

use common::{cases, items, pod, quantity, rows, text};
use serde_json::Value;
use sluice_engine::charge::Charge;
use sluice_engine::pod::{ChargeRules, PodInput, constraints, counts, pod_charge, stops_counting_at};
use sluice_engine::resource::{Resource, consumed_by_pods, is_extended, key_kind};
use sluice_engine::scope::{Operator, Scope, ScopeFacts, ScopeRequirement, Scopes};

fn minors(case: &Value) -> impl Iterator<Item = u32> {
    items(case, "/minors").map(|minor| u32::try_from(minor.as_u64().unwrap()).unwrap())
}

fn printed(charge: &Charge) -> BTreeMap<String, i128> {
    charge.iter().map(|(resource, amount)| (resource.to_string(), amount.nanos())).collect()
}

#[test]
fn pods_cost_what_kubernetes_charges() {
    let cases = cases("pod_charge.json");
    assert!(cases.len() >= 21);
    for case in cases {
        let expected = case.get("usage").and_then(Value::as_object).unwrap().iter();
        let expected: BTreeMap<String, i128> =
            expected.map(|(key, amount)| (key.clone(), quantity(amount.as_str().unwrap()).nanos())).collect();
        let now = case.get("now").and_then(Value::as_i64).unwrap();
        for minor in minors(&case) {
            let charge = pod_charge(&pod(&case["pod"]), ChargeRules::for_minor(minor), now);
            assert_eq!(printed(&charge), expected, "{} {} on 1.{minor}", case["number"], case["why"]);
        }
    }
}

#[test]
fn scopes_match_as_in_kubernetes() {
    for case in cases("scope_match.json") {
        let facts = ScopeFacts::of(&pod(&case["pod"]));
        let requirements = items(&case, "/selector").map(|requirement| {
            let scope = Scope::from_name(text(requirement, "scopeName").unwrap()).unwrap();
            let operator = Operator::from_name(text(requirement, "operator").unwrap()).unwrap();
            ScopeRequirement::new(scope, operator, items(requirement, "/values").filter_map(Value::as_str))
        });
        let matches = Scopes::new(requirements).matches(&facts);
        assert_eq!(Some(matches), case["matches"].as_bool(), "{}: {}", case["why"], case["selector"]);
    }
}

#[test]
fn containers_must_name_what_a_quota_makes_mandatory() {
    for case in cases("pod_constraints.json") {
        let keys = items(&case, "/keys").filter_map(Value::as_str);
        let error = constraints(keys, &pod(&case["pod"])).err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), case["error"].as_str(), "{}", case["why"]);
    }
}

#[test]
fn keys_are_consumed_by_whom_kubernetes_says() {
    let rows = rows("key_kind.tsv");
    assert!(rows.len() > 30);
    for row in rows {
        assert_eq!(format!("{:?}", key_kind(&row[1])), row[0], "{}", row[1]);
        assert_eq!(consumed_by_pods(&row[1]), row[0] != "Other", "{}", row[1]);
    }
}

#[test]
fn two_names_for_one_number_are_one_resource() {
    let same = [
        ("cpu", "requests.cpu"),
        ("memory", "requests.memory"),
        ("ephemeral-storage", "requests.ephemeral-storage"),
        ("hugepages-2Mi", "requests.hugepages-2Mi"),
        ("cpu/vmi", "requests.cpu/vmi"),
        ("instances/vmi", "requests.instances/vmi"),
    ];
    for (short, long) in same {
        assert_eq!(Resource::from_quota_key(short), Resource::from_quota_key(long));
        assert_eq!(Resource::from_quota_key(long).key(), short);
    }
    let different = [
        ("cpu", "limits.cpu"),
        ("pods", "count/pods"),
        ("nvidia.com/gpu", "requests.nvidia.com/gpu"),
        ("hugepages-2Mi", "hugepages-1Gi"),
        ("hugepages-2Mi", "limits.hugepages-2Mi"),
    ];
    for (left, right) in different {
        assert_ne!(Resource::from_quota_key(left), Resource::from_quota_key(right));
    }
}

#[test]
fn extended_resources_are_qualified_names_outside_kubernetes() {
    let longest = format!("{}/x", "a".repeat(253 - "requests.".len()));
    let too_long = format!("{}/x", "a".repeat(254 - "requests.".len()));
    for name in ["nvidia.com/gpu", "count/pods", "limits.nvidia.com/gpu", "a/b", &longest] {
        assert!(is_extended(name), "{name}");
    }
    for name in
        ["cpu", "requests.a/b", "kubernetes.io/x", "x.kubernetes.io/y", "A/b", "a/b/c", "a/", &too_long]
    {
        assert!(!is_extended(name), "{name}");
    }
}

#[test]
fn the_end_of_counting_is_the_first_second_after_deletion_and_grace() {
    let deleted =
        PodInput { deletion_timestamp: Some(100), deletion_grace_seconds: Some(30), ..PodInput::default() };
    assert_eq!(stops_counting_at(&deleted), Some(131));
    assert!(counts(&deleted, 130));
    assert!(!counts(&deleted, 131));
    let without_grace = PodInput { deletion_timestamp: Some(100), ..PodInput::default() };
    assert_eq!(stops_counting_at(&without_grace), None);
    assert!(counts(&without_grace, i64::MAX));
    let absurd = PodInput {
        deletion_timestamp: Some(i64::MAX),
        deletion_grace_seconds: Some(i64::MAX),
        ..PodInput::default()
    };
    assert!(counts(&absurd, 0));
}
