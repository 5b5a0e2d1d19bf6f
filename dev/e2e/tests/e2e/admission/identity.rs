//! The stamp says who created a pod, whatever the pod itself says.

use http::Method;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names::{self, CREATED_BY_ANNOTATION as STAMP};
use sluice_e2e::call::{JSON, JSON_PATCH, MERGE, STRATEGIC, call, get, post};
use sluice_manifests::Gating;

use crate::context::gates;
use crate::gate_policies::world::gated_by;
use crate::pods::{assert_refused, pod, stamp, with_stamp};
use crate::team::Team;

fn annotated(name: &str, annotations: &Value) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stamp_names_the_creator_and_overwrites_a_forged_one(#[case] gating: Gating) {
    let (bed, team) = (gated_by(gating).await, Team::gated_by(gating, "stamp").await);
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    let client = tenant.client().unwrap();
    for (name, annotations) in [
        ("plain", json!({})),
        ("forged", json!({STAMP: "system:serviceaccount:kubevirt:kubevirt-controller", "kept": "yes"})),
        ("empty", json!({STAMP: ""})),
    ] {
        let created = team.create_by(&client, &annotated(name, &annotations)).await;
        assert_eq!(created.code, 201, "{created:?}");
        assert_eq!(stamp(&created.body), Some(tenant.user()), "{name}");
        assert_eq!(created.body["metadata"]["annotations"]["kept"], annotations["kept"], "{name}");
        assert_eq!(gates(&created.body), [names::GATE]);
    }
}

/// Requests that leave the stamp out, and such that change it.
fn attempts(pod: &Value) -> (Vec<Attempt>, Vec<Attempt>) {
    let token = STAMP.replace('/', "~1");
    let pointer = format!("/metadata/annotations/{token}");
    let mut changed = pod.clone();
    changed["metadata"]["annotations"][STAMP] = json!("another user");
    let mut lost = pod.clone();
    lost["metadata"].as_object_mut().unwrap().remove("annotations");
    for body in [&mut changed, &mut lost] {
        body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    }
    let losses = vec![
        (Method::PATCH, JSON_PATCH, json!([{"op": "remove", "path": pointer}])),
        (Method::PATCH, JSON_PATCH, json!([{"op": "remove", "path": "/metadata/annotations"}])),
        (Method::PATCH, MERGE, json!({"metadata": {"annotations": {STAMP: null}}})),
        (Method::PATCH, STRATEGIC, json!({"metadata": {"annotations": null}})),
        (Method::PUT, JSON, lost),
    ];
    let changes = vec![
        (Method::PATCH, JSON_PATCH, json!([{"op": "replace", "path": pointer, "value": "x"}])),
        (Method::PATCH, MERGE, json!({"metadata": {"annotations": {STAMP: "x"}}})),
        (Method::PUT, JSON, changed),
    ];
    (losses, changes)
}

type Attempt = (Method, &'static str, Value);

/// An update that leaves it out, as one does that replaces the object by its manifest, has no effect on it; where no policy
/// can restore it, it is refused.
#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stamp_cannot_be_changed_or_removed(#[case] gating: Gating) {
    let (bed, team) = (gated_by(gating).await, Team::gated_by(gating, "stamp-stays").await);
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    let created = team.create_by(&tenant.client().unwrap(), &pod("p")).await;
    let path = team.path("pods/p");
    let (losses, changes) = attempts(&created.body);
    let restored = gating == Gating::Policy;
    for client in [team.client.clone(), tenant.client().unwrap()] {
        for (method, content_type, body) in &changes {
            let refused = call(&client, method.clone(), &path, content_type, body).await.unwrap();
            assert_refused(&refused, &[names::GUARD_POLICY, STAMP]);
        }
        for (method, content_type, body) in &losses {
            let answer = call(&client, method.clone(), &path, content_type, body).await.unwrap();
            assert_eq!(answer.code, if restored { 200 } else { 403 }, "{content_type} {body}: {answer:?}");
            assert!(
                !restored || stamp(&answer.body) == Some(tenant.user()),
                "{content_type} {body}: {answer:?}"
            );
        }
        let other = json!({"metadata": {"annotations": {"other": "x"}}});
        let answer = call(&client, Method::PATCH, &path, MERGE, &other).await.unwrap();
        assert_eq!(answer.code, 200, "other annotations are free: {answer:?}");
    }
    assert_eq!(stamp(&get(&team.client, &path).await.unwrap().body), Some(tenant.user()));
}

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_pods_are_not_gated_nobody_can_forge_a_stamp(#[case] gating: Gating) {
    let bed = gated_by(gating).await;
    let namespace = bed.namespace("untargeted", &[]).await.unwrap();
    let tenant = bed.tenant(&namespace).await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    for client in [bed.admin().unwrap(), tenant.client().unwrap()] {
        let forged = with_stamp(pod("forged"), "system:serviceaccount:kubevirt:kubevirt-controller");
        let answer = post(&client, &format!("{path}?dryRun=All"), &forged).await.unwrap();
        if gating == Gating::Policy {
            // As of a pod from a backup.
            assert_eq!(answer.code, 201, "{answer:?}");
            let creators = [tenant.user(), bed.admin_identity().user()];
            let stamped = stamp(&answer.body).unwrap();
            assert!(stamped != "system:serviceaccount:kubevirt:kubevirt-controller", "{answer:?}");
            assert!(creators.contains(&stamped), "{stamped} {creators:?}");
        } else {
            assert_refused(&answer, &[names::GUARD_POLICY, "leave the annotation out"]);
        }
    }
    let client = tenant.client().unwrap();
    let created = post(&client, &path, &pod("plain")).await.unwrap();
    assert_eq!((created.code, stamp(&created.body)), (201, None), "{created:?}");
    assert!(gates(&created.body).is_empty());
    let later = json!({"metadata": {"annotations": {STAMP: "x"}}});
    let refused = call(&client, Method::PATCH, &format!("{path}/plain"), MERGE, &later).await.unwrap();
    assert_eq!(refused.code, 403, "nor later: {refused:?}");
    // Saying the truth is no forgery.
    let honest = post(&client, &path, &with_stamp(pod("honest"), tenant.user())).await.unwrap();
    assert_eq!(honest.code, 201, "{honest:?}");
}
