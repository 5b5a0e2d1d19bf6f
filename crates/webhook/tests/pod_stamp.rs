//! The guard of pods: the identity stamp is true at creation and never changes.
#![allow(clippy::unwrap_used)]

mod common;

use common::{CONTROLLER, STAMP, TENANT, judge, patched, pod_create, pod_update, review};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_webhook::endpoints::{pod_gate, pod_guard};

fn stamped(stamp: Option<&str>) -> Value {
    match stamp {
        Some(stamp) => json!({"metadata": {"annotations": {"a": "b", STAMP: stamp}}, "spec": {}}),
        None => json!({"metadata": {"annotations": {"a": "b"}}, "spec": {}}),
    }
}

#[rstest]
#[case::true_stamp(Some(TENANT), true)]
#[case::none(None, true)]
#[case::forged(Some("system:admin"), false)]
#[case::empty(Some(""), false)]
#[case::other_case(Some("Alice"), false)]
#[case::with_space(Some("alice "), false)]
fn creation(#[case] stamp: Option<&str>, #[case] allowed: bool) {
    let verdict = judge(pod_guard, &pod_create(TENANT, &stamped(stamp)));
    assert_eq!((verdict.allowed, verdict.code), if allowed { (true, 202) } else { (false, 403) });
    assert_eq!(verdict.message.contains(STAMP), !allowed, "{}", verdict.message);
}

#[rstest]
#[case::kept(Some(TENANT), Some(TENANT), true)]
#[case::kept_of_another(Some("bob"), Some("bob"), true)]
#[case::never_there(None, None, true)]
#[case::added(None, Some(TENANT), false)]
#[case::removed(Some(TENANT), None, false)]
#[case::changed(Some(TENANT), Some("bob"), false)]
#[case::emptied(Some(TENANT), Some(""), false)]
fn change(#[case] old: Option<&str>, #[case] new: Option<&str>, #[case] allowed: bool) {
    for user in [TENANT, CONTROLLER, "system:admin"] {
        let verdict = judge(pod_guard, &pod_update(user, &stamped(old), &stamped(new)));
        assert_eq!(verdict.allowed, allowed, "as {user}");
        assert_eq!(verdict.code, if allowed { 202 } else { 403 });
    }
}

#[test]
fn removing_all_annotations_removes_the_stamp() {
    let verdict = judge(pod_guard, &pod_update(TENANT, &stamped(Some(TENANT)), &json!({"spec": {}})));
    assert_eq!((verdict.allowed, verdict.code), (false, 403));
}

#[test]
fn what_the_gate_endpoint_makes_passes() {
    for pod in [stamped(None), stamped(Some("system:admin")), json!({"spec": {}})] {
        let after = patched(&pod, &judge(pod_gate, &pod_create(TENANT, &pod)));
        assert!(judge(pod_guard, &pod_create(TENANT, &after)).allowed);
        assert!(!judge(pod_guard, &pod_create("bob", &after)).allowed);
    }
}

#[rstest]
#[case("DELETE", 202)]
#[case("CONNECT", 202)]
#[case("CREATE", 400)]
#[case("UPDATE", 400)]
#[case("create", 400)]
fn without_objects(#[case] operation: &str, #[case] code: u16) {
    let verdict = judge(pod_guard, &review("Pod", operation, TENANT, &Value::Null, &Value::Null));
    assert_eq!((verdict.allowed, verdict.code), (code == 202, code));
}
