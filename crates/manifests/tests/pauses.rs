//! Pauses are for administrators, and what they may do then is judged where the namespace is known.
#![allow(clippy::expect_used, reason = "a test stops at what is not as it must be")]

mod common;

use common::of_kind;
use serde_json::Value;
use sluice_api::names;
use sluice_manifests::{InstallOptions, admission_policies, render};

const ADMINISTERS: &str = "authorizer.group('aaq.kubevirt.io').resource('aaqs').check('update').allowed()";

fn texts<'v>(policy: &'v Value, field: &str) -> Vec<&'v str> {
    let items = policy.pointer(&format!("/spec/{field}")).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.get("expression")?.as_str()).collect()
}

#[test]
fn administrators_take_gates_in_paused_namespaces_which_match_conditions_do_not_know() {
    for options in
        [InstallOptions::default(), InstallOptions { namespace: "else".to_owned(), ..Default::default() }]
    {
        for each in admission_policies(&options) {
            let conditions = texts(&each.policy, "matchConditions");
            assert!(conditions.iter().all(|text| !text.contains("namespaceObject")), "{}", each.name);
            let about: Vec<_> = texts(&each.policy, "validations")
                .into_iter()
                .filter(|text| text.contains("namespaceObject"))
                .collect();
            if each.name != names::GUARD_POLICY {
                assert!(about.is_empty(), "{}: {about:?}", each.name);
                continue;
            }
            let paused = "namespaceObject.metadata.?annotations[?'quota.sluice.dev/paused'].hasValue()";
            assert_eq!(about.len(), 1, "{about:?}");
            assert!(
                about.iter().all(|text| text.ends_with(&format!(" || ({paused} && {ADMINISTERS})"))),
                "{about:?}"
            );
        }
    }
}

#[test]
fn whoever_writes_namespaces_pauses_none_by_any_way_to_their_annotations() {
    let policies = admission_policies(&InstallOptions::default());
    let pause = policies.iter().find(|each| each.name == names::PAUSE_POLICY).expect("a policy");
    let rules = pause.policy.pointer("/spec/matchConstraints/resourceRules").and_then(Value::as_array);
    let resources: Vec<_> = rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule.get("resources")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(resources, ["namespaces", "namespaces/status", "namespaces/finalize", "aaqs"]);
    let [who, time, rate] = texts(&pause.policy, "validations").try_into().expect("three validations");
    assert!(who.ends_with(&format!("|| {ADMINISTERS}")), "{who}");
    for (text, key) in [
        (time, names::PAUSED_ANNOTATION),
        (time, names::PAUSED_SINCE_ANNOTATION),
        (rate, names::PAUSE_RATE_ANNOTATION),
    ] {
        assert!(text.contains(&format!("[?'{key}'].orValue('').matches('^")), "{text}");
    }
    // An empty annotation is one too, and a pause goes no faster because its rate was removed.
    for key in [names::PAUSED_ANNOTATION, names::PAUSED_SINCE_ANNOTATION, names::PAUSE_RATE_ANNOTATION] {
        let [now, before, paused] =
            [("object", key), ("oldObject", key), ("object", names::PAUSED_ANNOTATION)]
                .map(|(object, key)| format!("{object}.metadata.?annotations[?'{key}']"));
        let matters = format!(
            "((request.operation == 'CREATE' || {now} != {before}) && ({now}.hasValue() || {paused}.hasValue()))"
        );
        assert!(who.contains(&matters), "{who}");
    }
    assert!(time.contains(" - timestamp(") && time.ends_with(" <= duration('24h'))"), "{time}");
    // A role that tenants have must not make administrators of them.
    let writes = |role: &Value| {
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().any(|rule| {
            let has = |field: &str, value: &str| {
                rule[field].as_array().is_some_and(|all| all.iter().any(|item| item == value))
            };
            has("resources", names::AAQS) && (has("verbs", "update") || has("verbs", "*"))
        })
    };
    let objects = render(&InstallOptions::default());
    assert!(!of_kind(&objects, "ClusterRole").into_iter().any(writes));
}
