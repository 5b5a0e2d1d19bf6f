//! Pod UPDATE: every way to lose the gate (reliability G2), and the ways that are harmless.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{CONTROLLER, GATE, TENANT, judge, pod_update, review};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_webhook::endpoints::pod_guard;

const KEPT: &str = "Pod update did not remove AAQGate";
const PERMITTED: &str = "AAQ controller has permission to remove gate from pods";
const DENIED: &str = "Only AAQ controller has permission to remove ApplicationAwareQuotaGate gate from pods";

fn gated(names: &[&str]) -> Value {
    let gates: Value = names.iter().map(|name| json!({ "name": name })).collect();
    json!({"metadata": {"name": "a", "labels": {}}, "spec": {"schedulingGates": gates}})
}

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": spec})
}

/// What a tenant may try on a pod that has the gate, alone or behind another one.
#[rstest]
#[case::list_removed(gated(&[GATE]), pod(json!({})))]
#[case::list_null(gated(&[GATE]), pod(json!({"schedulingGates": null})))]
#[case::list_emptied(gated(&[GATE]), gated(&[]))]
#[case::replaced(gated(&[GATE]), gated(&["other"]))]
#[case::only_ours_removed(gated(&["a", GATE, "b"]), gated(&["a", "b"]))]
#[case::all_removed(gated(&["a", GATE]), gated(&[]))]
#[case::duplicate_removed_both(gated(&[GATE, GATE]), gated(&[]))]
#[case::lower_case(gated(&[GATE]), gated(&["applicationawarequotagate"]))]
#[case::upper_case(gated(&[GATE]), gated(&["APPLICATIONAWAREQUOTAGATE"]))]
#[case::one_letter_case(gated(&[GATE]), gated(&["applicationAwareQuotaGate"]))]
#[case::cyrillic_letter(gated(&[GATE]), gated(&["\u{410}pplicationAwareQuotaGate"]))]
#[case::full_width(gated(&[GATE]), gated(&["\u{ff21}pplicationAwareQuotaGate"]))]
#[case::zero_width_space(gated(&[GATE]), gated(&["ApplicationAwareQuotaGate\u{200b}"]))]
#[case::zero_width_joiner_inside(gated(&[GATE]), gated(&["Application\u{200d}AwareQuotaGate"]))]
#[case::leading_space(gated(&[GATE]), gated(&[" ApplicationAwareQuotaGate"]))]
#[case::trailing_space(gated(&[GATE]), gated(&["ApplicationAwareQuotaGate "]))]
#[case::trailing_nul(gated(&[GATE]), gated(&["ApplicationAwareQuotaGate\0"]))]
#[case::newline(gated(&[GATE]), gated(&["ApplicationAwareQuotaGate\n"]))]
#[case::prefix_of_it(gated(&[GATE]), gated(&["ApplicationAwareQuota"]))]
#[case::with_suffix(gated(&[GATE]), gated(&["ApplicationAwareQuotaGateX"]))]
#[case::with_domain(gated(&[GATE]), gated(&["aaq.kubevirt.io/ApplicationAwareQuotaGate"]))]
#[case::empty_name(gated(&[GATE]), gated(&[""]))]
#[case::gate_without_name(gated(&[GATE]), pod(json!({"schedulingGates": [{}]})))]
#[case::name_under_other_key(gated(&[GATE]), pod(json!({"schedulingGates": [{"Name": GATE}]})))]
#[case::list_under_other_key(gated(&[GATE]), pod(json!({"SchedulingGates": [{"name": GATE}]})))]
#[case::gate_in_metadata(gated(&[GATE]), json!({"metadata": {"schedulingGates": [{"name": GATE}]}, "spec": {}}))]
#[case::gate_in_status(gated(&[GATE]), json!({"spec": {}, "status": {"schedulingGates": [{"name": GATE}]}}))]
#[case::gate_in_annotation(gated(&[GATE]), json!({"metadata": {"annotations": {"schedulingGates": GATE}}, "spec": {}}))]
#[case::with_a_label(gated(&[GATE]), json!({"metadata": {"labels": {"a": "b"}}, "spec": {}}))]
#[case::with_tolerations(gated(&[GATE]), pod(json!({"tolerations": [{"operator": "Exists"}]})))]
#[case::with_node_selector(gated(&[GATE]), pod(json!({"nodeSelector": {"a": "b"}, "schedulingGates": []})))]
#[case::with_node_name(gated(&[GATE]), pod(json!({"nodeName": "node-1"})))]
#[case::while_deleting(gated(&[GATE]), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}))]
#[case::spec_null(gated(&[GATE]), json!({"metadata": {}, "spec": null}))]
#[case::spec_missing(gated(&[GATE]), json!({"metadata": {}}))]
#[case::behind_a_hundred(gated(&[["x"; 100].as_slice(), &[GATE]].concat()), gated(&["x"; 100]))]
fn the_gate_cannot_be_removed(#[case] old: Value, #[case] new: Value) {
    let users = [
        TENANT,
        "system:admin",
        "kubernetes-admin",
        "system:serviceaccount:kube-system:replicaset-controller",
        "system:serviceaccount:team-a:sluice-controller",
        "system:serviceaccount:sluice-system:sluice-webhook",
        "system:serviceaccount:sluice-system:sluice-controller2",
        "System:serviceaccount:sluice-system:sluice-controller",
        "",
    ];
    for user in users {
        let verdict = judge(pod_guard, &pod_update(user, &old, &new));
        assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (false, 403, DENIED), "as {user}");
    }
    for user in [CONTROLLER, "break-glass"] {
        let verdict = judge(pod_guard, &pod_update(user, &old, &new));
        assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (true, 202, PERMITTED), "as {user}");
        assert!(verdict.patch.is_empty());
    }
}

#[rstest]
#[case::nothing_changed(gated(&[GATE]), gated(&[GATE]))]
#[case::reordered(gated(&["a", GATE]), gated(&[GATE, "a"]))]
#[case::foreign_removed(gated(&["a", GATE]), gated(&[GATE]))]
#[case::duplicate_removed_once(gated(&[GATE, GATE]), gated(&[GATE]))]
#[case::never_gated(gated(&[]), gated(&[]))]
#[case::never_gated_foreign_removed(gated(&["a"]), gated(&[]))]
#[case::forged_old_object(gated(&["a"]), pod(json!({})))]
#[case::gate_added(gated(&[]), gated(&[GATE]))]
#[case::escaped_spelling(gated(&[GATE]), gated(&[GATE]))]
#[case::old_without_spec(json!({"metadata": {}}), gated(&[]))]
#[case::label_changed(
    gated(&[GATE]),
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"schedulingGates": [{"name": GATE}]}}),
)]
fn other_updates_pass(#[case] old: Value, #[case] new: Value) {
    let verdict = judge(pod_guard, &pod_update(TENANT, &old, &new));
    assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (true, 202, KEPT));
    assert!(verdict.patch.is_empty());
}

#[test]
fn json_escapes_do_not_hide_the_gate() {
    let old = serde_json::to_string(&pod_update(TENANT, &gated(&[GATE]), &gated(&[]))).unwrap();
    let escaped = old.replace(GATE, "\\u0041pplicationAwareQuotaGate");
    assert_ne!(old, escaped);
    let review = sluice_webhook::Review::decode(escaped.as_bytes()).unwrap();
    assert_eq!(pod_guard(&review, &common::settings()).message, DENIED);
}

#[rstest]
#[case::no_object(gated(&[GATE]), Value::Null, "no object")]
#[case::no_old_object(Value::Null, gated(&[GATE]), "no oldObject")]
#[case::old_object_is_text(json!("x"), gated(&[GATE]), "oldObject")]
#[case::gates_are_a_map(gated(&[GATE]), pod(json!({"schedulingGates": {"name": GATE}})), "object")]
fn objects_that_are_no_pods_are_refused(#[case] old: Value, #[case] new: Value, #[case] part: &str) {
    let verdict = judge(pod_guard, &pod_update(CONTROLLER, &old, &new));
    assert_eq!((verdict.allowed, verdict.code), (false, 400));
    assert!(verdict.message.contains(part), "{}", verdict.message);
}

#[rstest]
#[case("DELETE", true)]
#[case("CONNECT", true)]
#[case("PATCH", false)]
#[case("", false)]
fn other_operations(#[case] operation: &str, #[case] allowed: bool) {
    let verdict = judge(pod_guard, &review("Pod", operation, TENANT, &Value::Null, &gated(&[GATE])));
    assert_eq!(verdict.allowed, allowed);
}

/// Who may take the gate away may still not change the stamp; who may do neither is told of the gate.
#[rstest]
#[case(CONTROLLER, common::STAMP)]
#[case(TENANT, DENIED)]
fn the_gate_and_the_stamp_at_once(#[case] user: &str, #[case] said: &str) {
    let mut old = gated(&[GATE]);
    old["metadata"]["annotations"] = json!({ common::STAMP: TENANT });
    let verdict = judge(pod_guard, &pod_update(user, &old, &gated(&[])));
    assert_eq!((verdict.allowed, verdict.code), (false, 403));
    assert!(verdict.message.contains(said), "{}", verdict.message);
}
