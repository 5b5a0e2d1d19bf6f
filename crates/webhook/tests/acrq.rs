//! Validation of cluster quotas.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{judge_with, review, settings};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::vm::Calculator;
use sluice_webhook::endpoints::acrq_validate;
use sluice_webhook::{AaqPresence, Settings, Verdict};

const KIND: &str = "ApplicationAwareClusterResourceQuota";
const VALID: &str = "ApplicationAwareClusterResourceQuota request is valid";
const ALLOWED: AaqPresence = AaqPresence::Present {
    cluster_quotas: true,
    calculator: Calculator::DedicatedVirtualResources,
    gives_way: false,
};

fn acrq(quota: Value, selector: Value) -> Value {
    json!({"apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": KIND, "metadata": {"name": "q"},
           "spec": {"quota": quota, "selector": selector}})
}

fn selecting(selector: Value) -> Value {
    acrq(json!({"hard": {"pods": "1"}}), selector)
}

fn limiting(quota: Value) -> Value {
    acrq(quota, json!({"labels": {"matchLabels": {"team": "a"}}}))
}

fn judged(operation: &str, aaq: AaqPresence, new: &Value, old: &Value) -> Verdict {
    judge_with(acrq_validate, &review(KIND, operation, "admin", new, old), &Settings { aaq, ..settings() })
}

fn create(object: &Value) -> Verdict {
    judged("CREATE", ALLOWED, object, &Value::Null)
}

fn update(old: &Value, new: &Value) -> Verdict {
    judged("UPDATE", ALLOWED, new, old)
}

#[rstest]
#[case::labels(selecting(json!({"labels": {"matchLabels": {"team": "a"}}})))]
#[case::as_go_writes_it(selecting(json!({"annotations": null, "labels": {"matchExpressions":
    [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default"]}]}})))]
#[case::annotations(selecting(json!({"annotations": {"openshift.io/requester": "alice@example.com"}, "labels": null})))]
#[case::annotation_in_any_case(selecting(json!({"annotations": {"Example.com/Team": ""}})))]
#[case::both(selecting(json!({"annotations": {"a": "b"}, "labels": {"matchLabels": {"a": "b"}}})))]
#[case::every_namespace(selecting(json!({"labels": {}})))]
#[case::every_namespace_in_full(
    selecting(json!({"labels": {"matchLabels": {}, "matchExpressions": []}, "annotations": {}}))
)]
#[case::no_limits(limiting(json!({})))]
#[case::scopes(limiting(json!({"hard": {"pods": 3, "cpu": 0.5}, "scopes": ["NotTerminating"], "scopeSelector":
    {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}})))]
fn valid(#[case] object: Value) {
    let other = limiting(json!({"hard": {"pods": "77"}}));
    for verdict in [create(&object), update(&other, &object)] {
        assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (true, 202, VALID));
        assert_eq!(verdict.warnings, Vec::<String>::new());
    }
}

#[rstest]
#[case::illegal_name(limiting(json!({"hard": {"illegalName": "1m"}})), "spec.quota.hard[illegalName]: Invalid value")]
#[case::no_quantity(limiting(json!({"hard": {"pods": "many"}})), "spec.quota.hard[pods]: Invalid value: \"many\"")]
#[case::negative(limiting(json!({"hard": {"pods": "-1"}})), "spec.quota.hard[pods]: Invalid value")]
#[case::scopes(limiting(json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]})), "spec.quota.scopes")]
#[case::scope_selector(limiting(json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions":
    [{"scopeName": "PriorityClass", "operator": "In"}]}})), "spec.quota.scopeSelector")]
#[case::operator(selecting(json!({"labels": {"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}})),
    "spec.selector.labels.matchExpressions[0].operator: Invalid value: \"Sometimes\"")]
#[case::label_beside_annotation(selecting(json!({"labels": {"matchLabels": {"a": "b c"}}, "annotations": {"a": "b"}})),
    "spec.selector.labels.matchLabels: Invalid value: \"b c\"")]
#[case::annotation(selecting(json!({"annotations": {"a b": "c"}})), "spec.selector.annotations: Invalid value: \"a b\"")]
#[case::annotation_without_name(selecting(json!({"annotations": {"example.com/": "c"}})),
    "spec.selector.annotations: Invalid value: \"example.com/\"")]
fn invalid(#[case] object: Value, #[case] start: &str) {
    let other = limiting(json!({"hard": {"pods": "77"}}));
    for verdict in [create(&object), update(&other, &object)] {
        assert_eq!((verdict.allowed, verdict.code), (false, 403), "{}", verdict.message);
        assert!(verdict.message.trim_start_matches('[').starts_with(start), "{}", verdict.message);
    }
}

#[rstest]
#[case::empty(json!({}))]
#[case::nulls(json!({"annotations": null, "labels": null}))]
#[case::empty_annotations(json!({"annotations": {}}))]
#[case::null(json!(null))]
fn a_selector_that_names_nothing_is_left_alone_but_not_written_again(#[case] selector: Value) {
    let said = "spec.selector: Required value: must name labels or annotations, set labels: {} to select every namespace";
    let object = selecting(selector.clone());
    let other_limits = acrq(json!({"hard": {"pods": "2"}}), selector);
    for verdict in [create(&object), update(&limiting(json!({})), &object), update(&object, &other_limits)] {
        assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (false, 403, said));
    }
    assert!(update(&object, &object).allowed, "a label can still be changed");
    assert!(update(&object, &selecting(json!({"labels": {}}))).allowed);
    let mut deleting = other_limits;
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(update(&object, &deleting).allowed, "finalizers can still be removed");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let object = acrq(json!({"hard": {"illegalName": "1"}}), json!({"annotations": {"?": ""}}));
    let message = create(&object).message;
    assert!(message.starts_with("[spec.quota.hard[illegalName]"), "{message}");
    assert!(message.contains(", spec.selector.annotations: ") && message.ends_with(']'), "{message}");
}

#[test]
fn keys_that_nothing_counts_are_warned_about() {
    let object = limiting(json!({"hard": {"services": "1", "pods": "1", "cpu/vmi": "8"}}));
    let warnings = create(&object).warnings;
    let [machines] = warnings.as_slice() else { panic!("one warning: {warnings:?}") };
    assert!(machines.starts_with("spec.quota.hard: not enforced: cpu/vmi: "), "{machines}");
    assert_eq!(update(&object, &object).warnings, Vec::<String>::new(), "a label changes nothing");
}

fn judged_where(is_served: Option<bool>, operation: &str, new: &Value, old: &Value) -> Verdict {
    let settings = Settings { aaq: ALLOWED, cluster_resource_quotas: is_served, ..settings() };
    judge_with(acrq_validate, &review(KIND, operation, "admin", new, old), &settings)
}

#[rstest]
#[case::openshift(Some(true), true)]
#[case::not_known(None, true)]
#[case::elsewhere(Some(false), false)]
fn keys_for_a_cluster_resource_quota_need_that_kind(#[case] is_served: Option<bool>, #[case] allowed: bool) {
    let with = |keys: Value| limiting(json!({ "hard": keys }));
    let (pods, more) =
        (with(json!({"pods": "1"})), with(json!({"services": "1", "count/secrets": "2", "pods": "1"})));
    for verdict in [
        judged_where(is_served, "CREATE", &more, &Value::Null),
        judged_where(is_served, "UPDATE", &more, &pods),
    ] {
        let said = if allowed {
            VALID
        } else {
            "ApplicationAwareClusterResourceQuota without clusterResourceQuota support, operator cannot handle non \
             scheduable resources :[count/secrets services]: limit them by a quota in each namespace"
        };
        assert_eq!((verdict.allowed, &*verdict.message), (allowed, said));
    }
    // Neither what pods take, nor what has been there before.
    let counted = with(json!({"pods": "1", "count/pods": "1", "hugepages-2Mi": "4Mi", "cpu/vmi": "1"}));
    assert!(judged_where(is_served, "CREATE", &counted, &Value::Null).allowed);
    assert!(judged_where(is_served, "UPDATE", &more, &more).allowed);
    assert!(judged_where(is_served, "UPDATE", &pods, &more).allowed);
}

#[test]
fn a_name_too_long_for_a_managed_quota_is_refused_with_such_keys() {
    let named = |length: usize, keys: Value| {
        let mut request = review(KIND, "CREATE", "admin", &limiting(json!({ "hard": keys })), &Value::Null);
        request["request"]["name"] = json!("n".repeat(length));
        judge_with(acrq_validate, &request, &Settings { aaq: ALLOWED, ..settings() })
    };
    let most = sluice_api::names::MAX_NAME_OF_MANAGED_CLUSTER;
    assert!(named(most, json!({"services": "1"})).allowed);
    assert!(named(most + 1, json!({"pods": "1"})).allowed);
    let message = named(most + 1, json!({"services": "1"})).message;
    for said in
        ["metadata.name: Invalid value", "services in spec.quota.hard", "by a ClusterResourceQuota", "-crq-x"]
    {
        assert!(message.contains(said), "{said}: {message}");
    }
}

fn present_without_cluster_quotas() -> AaqPresence {
    AaqPresence::Present { cluster_quotas: false, calculator: Calculator::VmiPodUsage, gives_way: false }
}

#[rstest]
#[case::allowed(ALLOWED, false)]
#[case::not_allowed(present_without_cluster_quotas(), true)]
#[case::no_aaq(AaqPresence::Absent, true)]
#[case::not_known(AaqPresence::Unknown, false)]
fn where_cluster_quotas_are_not_allowed_they_are_accepted_with_a_warning(
    #[case] aaq: AaqPresence,
    #[case] warned: bool,
) {
    let object = limiting(json!({"hard": {"pods": "1"}}));
    for verdict in
        [judged("CREATE", aaq, &object, &Value::Null), judged("UPDATE", aaq, &object, &limiting(json!({})))]
    {
        assert!(verdict.allowed);
        let about = |warning: &String| {
            warning.contains("spec.configuration.allowApplicationAwareClusterResourceQuota")
                && warning.len() <= 256
        };
        assert_eq!(verdict.warnings.iter().filter(|warning| about(warning)).count(), usize::from(warned));
        assert_eq!(verdict.warnings.len(), usize::from(warned), "{:?}", verdict.warnings);
    }
}

#[rstest]
#[case::no_object(Value::Null)]
#[case::text(json!("x"))]
#[case::spec_is_text(json!({"metadata": {}, "spec": "x"}))]
#[case::hard_is_a_list(limiting(json!({"hard": []})))]
#[case::quota_is_a_list(limiting(json!(["x"])))]
#[case::labels_are_text(selecting(json!({"labels": "x"})))]
#[case::annotations_are_a_list(selecting(json!({"annotations": ["a"]})))]
fn what_is_no_quota_is_refused(#[case] object: Value) {
    let verdict = create(&object);
    assert_eq!((verdict.allowed, verdict.code), (false, 400), "{}", verdict.message);
}
