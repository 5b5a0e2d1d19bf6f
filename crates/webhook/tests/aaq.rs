//! The AAQ: one at most, with a selector that the API server takes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{judge_with, review, settings};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_webhook::endpoints::aaq_validate;
use sluice_webhook::{AaqPresence, Settings, Verdict};

fn aaq(spec: Value) -> Value {
    json!({"apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "AAQ", "metadata": {"name": "aaq"}, "spec": spec})
}

const PRESENT: AaqPresence = AaqPresence::Present { cluster_quotas: false };

fn selecting(selector: Value) -> Value {
    aaq(json!({"namespaceSelector": selector}))
}

fn judged(operation: &str, aaq: AaqPresence, object: &Value, old: &Value) -> Verdict {
    judge_with(aaq_validate, &review("AAQ", operation, "admin", object, old), &Settings { aaq, ..settings() })
}

fn create(object: &Value) -> Verdict {
    judged("CREATE", AaqPresence::Absent, object, &Value::Null)
}

/// While it exists, or nothing is known: only a creation asks.
fn update(old: &Value, new: &Value) -> Verdict {
    let present = judged("UPDATE", PRESENT, new, old);
    assert_eq!(present, judged("UPDATE", AaqPresence::Unknown, new, old));
    present
}

#[rstest]
#[case(AaqPresence::Absent, true, 202)]
#[case(PRESENT, false, 403)]
#[case(AaqPresence::Unknown, false, 503)]
fn there_is_one_aaq(#[case] aaq: AaqPresence, #[case] allowed: bool, #[case] code: u16) {
    let object = self::aaq(json!({}));
    let verdict = judged("CREATE", aaq, &object, &Value::Null);
    assert_eq!((verdict.allowed, verdict.code), (allowed, code));
    if aaq == PRESENT {
        assert_eq!(verdict.message, "only a single AAQ CR instance is allowed");
    }
    assert!(update(&object, &self::aaq(json!({"priorityClass": "high"}))).allowed);
    assert!(judged("DELETE", aaq, &Value::Null, &object).allowed);
}

#[rstest]
#[case::absent(json!(null))]
#[case::empty_value(json!({"matchLabels": {"team": ""}}))]
#[case::expressions(json!({"matchLabels": {"a": "b"}, "matchExpressions": [
    {"key": "example.com/team", "operator": "In", "values": ["a", ""]}, {"key": "b", "operator": "DoesNotExist"}]}))]
fn selectors_that_the_api_server_takes(#[case] selector: Value) {
    for verdict in [create(&selecting(selector.clone())), update(&aaq(json!({})), &selecting(selector))] {
        assert_eq!((verdict.allowed, verdict.code), (true, 202), "{}", verdict.message);
        assert_eq!(verdict.warnings, Vec::<String>::new());
    }
}

#[rstest]
#[case::operator(json!({"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}),
    "spec.namespaceSelector.matchExpressions[0].operator: Invalid value: \"Sometimes\": not a valid selector operator, \
     use In, NotIn, Exists or DoesNotExist")]
#[case::no_values(json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
    "spec.namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or \
     'NotIn', use Exists or DoesNotExist for any value")]
#[case::label(json!({"matchLabels": {"a": "b c"}}), "spec.namespaceSelector.matchLabels: Invalid value: \"b c\"")]
fn what_is_no_selector_is_refused_by_field(#[case] selector: Value, #[case] start: &str) {
    for verdict in [create(&selecting(selector.clone())), update(&selecting(json!({})), &selecting(selector))]
    {
        assert_eq!((verdict.allowed, verdict.code), (false, 403));
        assert!(verdict.message.starts_with(start), "{}", verdict.message);
    }
}

#[test]
fn several_errors_are_a_list() {
    let verdict = create(&selecting(json!({"matchExpressions": [{"key": "?", "operator": "In"}]})));
    assert!(verdict.message.starts_with("[spec.") && verdict.message.ends_with(']'), "{}", verdict.message);
}

#[test]
fn an_update_is_checked_for_what_it_changes() {
    let bad = |more: Value| {
        let mut object =
            selecting(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}));
        object["spec"]["infra"] = more;
        object
    };
    assert!(update(&bad(json!({})), &bad(json!({}))).allowed, "labels and finalizers can still be written");
    assert!(update(&bad(json!({})), &bad(json!({"nodeSelector": {"a": "b"}}))).allowed, "and other fields");
    assert!(update(&bad(json!({})), &selecting(json!({"matchLabels": {"a": "b"}}))).allowed);
    assert!(update(&bad(json!({})), &aaq(json!({}))).allowed);
    assert_eq!(update(&aaq(json!({})), &bad(json!({}))).code, 403);
    let mut deleting = bad(json!({}));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(update(&aaq(json!({})), &deleting).allowed);
}

#[test]
fn who_selects_every_namespace_is_warned_once() {
    for every in [json!({}), json!({"matchLabels": {}, "matchExpressions": []})] {
        let verdict = create(&selecting(every.clone()));
        assert!(verdict.allowed && verdict.warnings.len() == 1, "{verdict:?}");
        assert!(verdict.warnings[0].starts_with("spec.namespaceSelector: {}"), "{verdict:?}");
        assert!(verdict.warnings[0].len() <= 256, "the API server cuts it");
        let mut other = selecting(every.clone());
        other["spec"]["infra"] = json!({});
        assert_eq!(update(&selecting(every), &other).warnings, Vec::<String>::new());
    }
    let all_but = json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
    assert_eq!(create(&selecting(all_but)).warnings, Vec::<String>::new());
}

#[test]
fn fields_that_are_not_in_force_are_named() {
    let unset = json!({
        "certConfig": {"ca": {}},
        "configuration": {
            "allowApplicationAwareClusterResourceQuota": false, "sidecarEvaluators": [],
            "vmiCalculatorConfiguration": {"configName": "IgnoreVmiCalculator"},
        },
        "infra": {"nodeSelector": {}}, "workload": {},
    });
    assert_eq!(create(&aaq(unset)).warnings, Vec::<String>::new());
    let set = json!({
        "certConfig": {"ca": {"duration": "48h"}},
        "configuration": {
            "allowApplicationAwareClusterResourceQuota": true, "sidecarEvaluators": [{"name": "a"}],
            "vmiCalculatorConfiguration": {"configName": "DedicatedVirtualResources"},
        },
        "imagePullPolicy": "Always",
        "infra": {"nodeSelector": {"a": "b"}},
        "priorityClass": "high",
        "tlsSecurityProfile": {"type": "Modern"},
        "workload": {"tolerations": [{"operator": "Exists"}]},
    });
    let warnings = create(&aaq(set.clone())).warnings;
    let fields: Vec<&str> = warnings.iter().filter_map(|warning| warning.split(' ').next()).collect();
    assert_eq!(
        fields,
        [
            "spec.certConfig",
            "spec.configuration.allowApplicationAwareClusterResourceQuota",
            "spec.configuration.sidecarEvaluators",
            "spec.configuration.vmiCalculatorConfiguration.configName",
            "spec.imagePullPolicy",
            "spec.infra",
            "spec.priorityClass",
            "spec.tlsSecurityProfile",
            "spec.workload",
        ]
    );
    assert!(warnings.iter().all(|warning| warning.len() <= 256), "{warnings:?}");
    assert_eq!(update(&aaq(set.clone()), &aaq(set)).warnings, Vec::<String>::new(), "not again for a label");
}

#[rstest]
#[case::no_object(Value::Null)]
#[case::text(json!("x"))]
#[case::selector_is_text(selecting(json!("x")))]
#[case::expressions_are_a_map(selecting(json!({"matchExpressions": {}})))]
fn what_is_no_aaq_is_refused(#[case] object: Value) {
    let verdict = create(&object);
    assert_eq!((verdict.allowed, verdict.code), (false, 400), "{}", verdict.message);
}
