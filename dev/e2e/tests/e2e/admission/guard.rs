//! Only the controller takes the gate from a pod.

use http::Method;
use kube::Client;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names::{self, GATE};
use sluice_e2e::call::{APPLY, JSON, JSON_PATCH, MERGE, Response, STRATEGIC, call, get, post};
use sluice_manifests::Gating;

use crate::context::{gates, kubectl_tries, manifest, shared};
use crate::gate_policies::world::gated_by;
use crate::pods::{pod, with_gates};
use crate::team::Team;

/// In the words of upstream's webhook.
const REFUSAL: &str = "ValidatingAdmissionPolicy 'sluice-guard' with binding 'sluice-guard' denied request: \
    Only AAQ controller has permission to remove ApplicationAwareQuotaGate gate from pods";

/// By server-side apply gates can be taken away that were set by it.
async fn apply(client: &Client, path: &str, pod: &Value) -> Response {
    call(client, Method::PATCH, &format!("{path}?fieldManager=owner&force=true"), APPLY, pod).await.unwrap()
}

/// Every way to ask for a pod without our gate. `known` is the pod as it is.
fn removals(known: &Value) -> Vec<(&'static str, Method, &'static str, Value)> {
    let mut put = known.clone();
    put["spec"].as_object_mut().unwrap().remove("schedulingGates");
    put["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let mut put_empty = put.clone();
    put_empty["spec"]["schedulingGates"] = json!([]);
    let gates = "/spec/schedulingGates";
    let first = "/spec/schedulingGates/0";
    vec![
        ("", Method::PATCH, JSON_PATCH, json!([{"op": "remove", "path": gates}])),
        ("", Method::PATCH, JSON_PATCH, json!([{"op": "remove", "path": first}])),
        ("", Method::PATCH, JSON_PATCH, json!([{"op": "replace", "path": gates, "value": []}])),
        (
            "",
            Method::PATCH,
            JSON_PATCH,
            // Hidden among changes that are allowed.
            json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, {"op": "remove", "path": first}]),
        ),
        ("", Method::PATCH, MERGE, json!({"spec": {"schedulingGates": null}})),
        (
            "",
            Method::PATCH,
            MERGE,
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"schedulingGates": []}}),
        ),
        ("", Method::PATCH, STRATEGIC, json!({"spec": {"schedulingGates": null}})),
        ("", Method::PATCH, STRATEGIC, json!({"spec": {"schedulingGates": [{"$patch": "replace"}]}})),
        (
            "",
            Method::PATCH,
            STRATEGIC,
            json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}),
        ),
        ("?fieldManager=owner&force=true", Method::PATCH, APPLY, pod("p")),
        ("", Method::PUT, JSON, put),
        ("", Method::PUT, JSON, put_empty.clone()),
        ("?dryRun=All", Method::PUT, JSON, put_empty),
    ]
}

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_is_removed_by_nobody_else_in_no_way(#[case] gating: Gating) {
    let (bed, team) = (gated_by(gating).await, Team::gated_by(gating, "guard").await);
    let path = team.path("pods/p");
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    let created = apply(&tenant.client().unwrap(), &path, &with_gates(pod("p"), &[GATE])).await;
    assert_eq!(created.code, 201, "{created:?}");
    bed.apply_objects([json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "default-admin", "namespace": team.namespace.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": team.namespace.name}],
    })])
    .await
    .unwrap();
    let account = bed.service_account(&team.namespace.name, "default").await.unwrap();
    for identity in [bed.admin_identity(), &tenant, &account] {
        let client = identity.client().unwrap();
        for (query, method, content_type, body) in removals(&created.body) {
            let refused =
                call(&client, method.clone(), &format!("{path}{query}"), content_type, &body).await.unwrap();
            let who = identity.user();
            assert_eq!(refused.code, 403, "{who}: {method} {content_type} {body}: {refused:?}");
            assert!(
                refused.message().ends_with(REFUSAL),
                "{who}: {method} {content_type} {body}: {}",
                refused.message()
            );
            assert_eq!(gates(&get(&team.client, &path).await.unwrap().body), [GATE]);
        }
    }
    assert_eq!(team.held().await, ["p"]);
}

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_replace_and_rename_do_not_remove_the_gate(#[case] gating: Gating) {
    let (bed, team) = (gated_by(gating).await, Team::gated_by(gating, "rename").await);
    let path = team.path("pods/p");
    let created = apply(&team.client, &path, &with_gates(pod("p"), &["example.com/other", GATE])).await;
    let mut bare = created.body.clone();
    bare["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    bare["spec"]["schedulingGates"] = json!([{"name": "example.com/other"}]);
    let file = manifest(bed, "replace.json", &bare.to_string());
    let (done, _, stderr) = kubectl_tries(bed, &["replace", "--raw", &path, "--filename", &file]).await;
    assert!(!done && stderr.contains("Only AAQ controller has permission"), "{stderr}");
    // Gates that are put in its place are no way either: the API server adds none to a pod that exists.
    for name in ["applicationawarequotagate", "ApplicationAwareQuotaGate2", "ApplicationAwareQuotaGаte"] {
        bare["spec"]["schedulingGates"] = json!([{"name": "example.com/other"}, {"name": name}]);
        let refused = call(&team.client, Method::PUT, &path, JSON, &bare).await.unwrap();
        assert!(matches!(refused.code, 403 | 422), "{name}: {refused:?}");
        assert_eq!(gates(&get(&team.client, &path).await.unwrap().body), ["example.com/other", GATE]);
    }
    // Another order is none of our business, another name of the object none of the API server's.
    bare["spec"]["schedulingGates"] = json!([{"name": GATE}, {"name": "example.com/other"}]);
    let moved = call(&team.client, Method::PUT, &path, JSON, &bare).await.unwrap();
    assert!(moved.is_ok() && gates(&moved.body).contains(&GATE), "{moved:?}");
    bare["metadata"]["name"] = json!("q");
    let renamed = call(&team.client, Method::PUT, &path, JSON, &bare).await.unwrap();
    assert_eq!(renamed.code, 400, "{renamed:?}");
}

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_else_about_a_held_pod_can_be_changed(#[case] gating: Gating) {
    let team = Team::gated_by(gating, "others").await;
    let path = team.path("pods/p");
    assert_eq!(
        apply(&team.client, &path, &with_gates(pod("p"), &["example.com/other", GATE])).await.code,
        201
    );
    let debug = json!({"spec": {"ephemeralContainers": [
        {"name": "debug", "image": "none", "targetContainerName": "main"},
    ]}});
    for (subresource, content_type, body) in [
        ("", MERGE, json!({"metadata": {"labels": {"team": "a"}}})),
        ("", STRATEGIC, json!({"spec": {"containers": [{"name": "main", "image": "other"}]}})),
        // Foreign gates are not ours to keep.
        (
            "",
            STRATEGIC,
            json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/other"}]}}),
        ),
        ("", MERGE, json!({"spec": {"nodeSelector": {"disk": "fast"}}})),
        ("/ephemeralcontainers", STRATEGIC, debug),
        ("/status", MERGE, json!({"status": {"message": "x"}})),
    ] {
        let url = format!("{path}{subresource}");
        let answer = call(&team.client, Method::PATCH, &url, content_type, &body).await.unwrap();
        assert_eq!(answer.code, 200, "{subresource} {body}: {answer:?}");
        assert!(gates(&answer.body).contains(&GATE), "{subresource} {body}: {answer:?}");
    }
    let pod = get(&team.client, &path).await.unwrap().body;
    assert_eq!(gates(&pod), [GATE]);
    assert_eq!(pod["spec"]["ephemeralContainers"][0]["name"], "debug", "{pod}");
}

#[rstest]
#[case::policy(Gating::Policy)]
#[case::webhook(Gating::Webhook)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresources_are_no_way_around_the_gate(#[case] gating: Gating) {
    let team = Team::gated_by(gating, "subresources").await;
    let path = team.path("pods/p");
    assert_eq!(apply(&team.client, &path, &pod("p")).await.code, 201);
    let bare = json!({"spec": {"schedulingGates": null}});
    for subresource in ["status", "ephemeralcontainers", "resize"] {
        let answer =
            call(&team.client, Method::PATCH, &format!("{path}/{subresource}"), MERGE, &bare).await.unwrap();
        let left = get(&team.client, &path).await.unwrap().body;
        assert_eq!(gates(&left), [GATE], "{subresource}: {answer:?}");
    }
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    });
    for path in ["pods/p/binding", "bindings"] {
        let refused = post(&team.client, &team.path(path), &binding).await.unwrap();
        assert_eq!(refused.code, 409, "{path}: {refused:?}");
        assert!(refused.message().contains("schedulingGates"), "{}", refused.message());
    }
}

#[tokio::test]
async fn a_forged_job_queue_config_releases_nothing() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "forged").await;
    team.quota("one", &[("pods", "1")]).await;
    team.pod("first", &[]).await;
    team.until_released("first").await;
    team.pod("second", &[]).await;
    let path =
        format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{}/aaqjobqueueconfigs", team.namespace.name);
    let object = json!({
        "apiVersion": names::API_VERSION, "kind": "AAQJobQueueConfig",
        "metadata": {"name": names::JOB_QUEUE_CONFIG}, "spec": {},
    });
    assert_eq!(post(&team.client, &path, &object).await.unwrap().code, 201);
    // Upstream's controller would release these without looking at the quota, and wait for its locks.
    let status = json!({"status": {
        "podsInJobQueue": ["second", "third"],
        "controllerLock": {names::ARQ_LOCK: true, names::ACRQ_LOCK: true},
    }});
    let path = format!("{path}/{}", names::JOB_QUEUE_CONFIG);
    let written = call(&team.client, Method::PATCH, &format!("{path}/status"), MERGE, &status).await.unwrap();
    assert_eq!(written.code, 200, "{written:?}");
    team.pod("third", &[]).await;
    // The controller goes on with its work: what has room is released although the locks say "busy".
    let other = Team::on(bed, "forged-barrier").await;
    other.quota("one", &[("pods", "1")]).await;
    other.pod("goes", &[]).await;
    other.until_released("goes").await;
    assert_eq!(team.held().await, ["second", "third"]);
    team.pods.delete("first", &kube::api::DeleteParams::default()).await.unwrap();
    // One of the two: those of the same second have no order that a test could know.
    team.until_released_count(1).await;
    team.until_used("one", "pods", "1").await;
    assert_eq!(team.held().await.len(), 1);
}
