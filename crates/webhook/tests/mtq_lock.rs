//! The decisions and texts of managed-tenant-quota's lock server, and its HTTP contract.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use axum::body::Body;
use axum::http::StatusCode;
use common::{TENANT, app, judge_with, request, review, send, service, serving, settings};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::{Endpoint, names};
use sluice_webhook::Settings;
use sluice_webhook::endpoints::mtq_lock;

const KUBEVIRT: &str = "system:serviceaccount:kubevirt:kubevirt-controller";
const OURS: &str = "system:serviceaccount:sluice-system:sluice-controller";
const MTQ: &str = "system:serviceaccount:sluice-system:mtq-controller";
const VMMRQ: &str = "VirtualMachineMigrationResourceQuota";

const M1: &str = "Migration process is currently being handled by the Managed Quota controller, and as a result, creations of pods are not allowed in this namespace, please try again.";
const M2: &str = "Migration process is currently being handled by the Managed Quota controller, and as a result, modifications to resourceQuotas are not permitted in this namespace, please try again.";
const M3: &str = "Migration process is currently being handled by the Managed Quota controller, and as a result, modifications,creation or deletion of virtualMachineMigrationResourceQuotas are not permitted in this namespace, please try again.";

fn known() -> Settings {
    Settings { kubevirt_controller: Some(names::kubevirt_controller_username("kubevirt")), ..settings() }
}

fn labelled(labels: Value) -> Value {
    json!({"metadata": {"name": "p", "labels": labels}, "spec": {}})
}

fn target() -> Value {
    labelled(json!({"kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": "u"}))
}

#[rstest]
#[case::target("Pod", KUBEVIRT, target(), 202, "valid target virt-launcher")]
#[case::any_value("Pod", KUBEVIRT, labelled(json!({"kubevirt.io/migrationJobUID": ""})), 202, "valid target virt-launcher")]
#[case::source("Pod", KUBEVIRT, labelled(json!({"kubevirt.io": "virt-launcher"})), 403, M1)]
#[case::no_labels("Pod", KUBEVIRT, json!({"metadata": {}}), 403, M1)]
#[case::null_labels("Pod", KUBEVIRT, json!({"metadata": {"labels": null}}), 403, M1)]
#[case::no_metadata("Pod", KUBEVIRT, json!({}), 403, M1)]
#[case::forged("Pod", TENANT, target(), 403, M1)]
#[case::forged_by_us("Pod", OURS, target(), 403, M1)]
#[case::other_namespace("Pod", "system:serviceaccount:team-a:kubevirt-controller", target(), 403, M1)]
#[case::longer_name("Pod", "system:serviceaccount:kubevirt:kubevirt-controller2", target(), 403, M1)]
#[case::anonymous("Pod", "", target(), 403, M1)]
#[case::quota_by_us("ResourceQuota", OURS, json!({}), 202, "valid ResourceQuota Update")]
#[case::quota_by_mtq("ResourceQuota", MTQ, json!({}), 202, "valid ResourceQuota Update")]
#[case::quota_by_tenant("ResourceQuota", TENANT, json!({}), 403, M2)]
#[case::quota_by_kubevirt("ResourceQuota", KUBEVIRT, json!({}), 403, M2)]
#[case::quota_by_other_mtq("ResourceQuota", "system:serviceaccount:team-a:mtq-controller", json!({}), 403, M2)]
#[case::vmmrq_by_us(VMMRQ, OURS, json!({}), 202, "valid VirtualMachineMigrationResourceQuota Update")]
#[case::vmmrq_by_mtq(VMMRQ, MTQ, json!({}), 202, "valid VirtualMachineMigrationResourceQuota Update")]
#[case::vmmrq_by_tenant(VMMRQ, TENANT, json!({}), 403, M3)]
fn decisions(
    #[case] kind: &str,
    #[case] user: &str,
    #[case] object: Value,
    #[case] code: u16,
    #[case] message: &str,
    // None of these makes a difference.
    #[values("CREATE", "UPDATE", "DELETE")] operation: &str,
) {
    let verdict = judge_with(mtq_lock, &review(kind, operation, user, &object, &json!({})), &known());
    assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (code == 202, code, message));
    assert!(verdict.patch.is_empty() && verdict.warnings.is_empty());
}

#[test]
fn without_knowing_where_kubevirt_is_no_pod_is_a_target() {
    for user in [KUBEVIRT, "", TENANT] {
        let verdict =
            judge_with(mtq_lock, &review("Pod", "CREATE", user, &target(), &Value::Null), &settings());
        assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (false, 403, M1), "{user}");
    }
}

#[rstest]
#[case::other_kind(review("ConfigMap", "CREATE", KUBEVIRT, &json!({}), &Value::Null), "MTQ webhook doesn't recognize request: kind \"ConfigMap\"")]
#[case::no_kind(review("", "CREATE", KUBEVIRT, &json!({}), &Value::Null), "MTQ webhook doesn't recognize request")]
#[case::no_object(review("Pod", "CREATE", KUBEVIRT, &Value::Null, &Value::Null), "admission request has no object")]
#[case::no_pod(review("Pod", "CREATE", KUBEVIRT, &json!({"metadata": "x"}), &Value::Null), "could not read object")]
#[case::no_labels(review("Pod", "CREATE", KUBEVIRT, &json!({"metadata": {"labels": "x"}}), &Value::Null), "could not read object")]
fn what_cannot_be_decided_is_refused(#[case] review: Value, #[case] text: &str) {
    let verdict = judge_with(mtq_lock, &review, &known());
    assert!(!verdict.allowed && verdict.message.contains(text), "{verdict:?}");
}

#[tokio::test]
async fn the_answer_is_v1_with_the_uid_and_follows_what_the_app_learns() {
    let app = app();
    let mut review = review("Pod", "CREATE", KUBEVIRT, &target(), &Value::Null);
    review["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let body = serde_json::to_vec(&review).unwrap();
    let known = || Some(KUBEVIRT.to_owned());
    for (username, code, message) in
        [(None, 403, M1), (known(), 202, "valid target virt-launcher"), (None, 403, M1)]
    {
        app.set_kubevirt_controller(username);
        let (status, kind, body) = send(serving(&app), request(Endpoint::MtqLock.path(), body.clone())).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "application/json"));
        assert_eq!(
            serde_json::from_slice::<Value>(&body).unwrap(),
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "allowed": code == 202,
                "status": {"metadata": {}, "message": message, "code": code},
            }})
        );
    }
}

#[rstest]
#[case::empty("application/json", "", 400)]
#[case::no_json("application/json", "{", 400)]
#[case::no_request(
    "application/json",
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
    400
)]
#[case::content_type("text/plain", "{}", 400)]
#[tokio::test]
async fn what_is_no_review_is_answered_with_400(
    #[case] content_type: &str,
    #[case] body: &'static str,
    #[case] expected: u16,
) {
    let mut request = request(Endpoint::MtqLock.path(), Body::from(body));
    request.headers_mut().insert("content-type", content_type.parse().unwrap());
    let (status, _, _) = send(service(), request).await;
    assert_eq!(status.as_u16(), expected);
}
