//! What a tenant can and cannot do while a quota is raised.

use http::Method;
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::Api;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{self, Response};
use sluice_e2e::intruders::{editor, grant, growth, intruder, waiting_intruder};
use sluice_e2e::tenant::{SOON, Tenant, shared, used};
use sluice_testbed::{Identity, wait};

use crate::tenants::held_lock::HeldLock;

/// Room for many pods of the tenant.
fn raised() -> Value {
    json!({ "requests.memory": "10Gi", "pods": "100" })
}

/// A tenant with three pods in a quota that is full of them.
async fn scene(prefix: &str) -> (Tenant<'static>, Identity) {
    let tenant = Tenant::on(shared().await.bed, prefix).await;
    for name in ["one", "two", "three"] {
        let pod = waiting_intruder(json!({ "name": name, "labels": { "app": "own" } }));
        tenant.pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    tenant.quota("rq", json!({ "requests.memory": "150Mi", "pods": "3" })).await;
    let full = |quota: &ResourceQuota| used(quota).get("pods").is_some_and(|pods| pods.0 == "3");
    tenant.until_quota("rq", "three pods to be counted", full).await;
    let editor = editor(&tenant).await;
    (tenant, editor)
}

async fn tries(who: &Identity, method: Method, path: &str, content: &str, body: &Value) -> Response {
    call::call(&who.client().unwrap(), method, path, content, body).await.unwrap()
}

/// The charge guard alone would take a pod that grows by exactly what was raised for the target.
#[rstest]
#[case::of_more_than_it_grows_by(raised())]
#[case::of_exactly_what_it_grows_by(json!({ "requests.memory": "190Mi" }))]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_cannot_grow_into_the_room_of_a_target(#[case] raised: Value) {
    let (tenant, editor) = scene("resize").await;
    grant(&tenant, &editor, "", "pods/resize").await;
    let path = format!("/api/v1/namespaces/{}/pods/one/resize", tenant.name());
    let grown = growth();
    let resize = || tries(&editor, Method::PATCH, &path, call::STRATEGIC, &grown);
    let full = resize().await;
    assert!(full.code == 403 && full.message().contains("exceeded quota"), "{full:?}");
    let lock = HeldLock::hold(&tenant, "rq", raised).await;
    let locked = resize().await;
    assert!(locked.code == 403 && locked.message().contains("is reserved for the target"), "{locked:?}");
    lock.release().await;
    tenant.until_clear().await;
    let after = resize().await;
    assert!(after.message().contains("exceeded quota"), "{after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_of_a_tenant_is_created_in_a_raised_quota_whatever_it_says() {
    let (tenant, editor) = scene("locked").await;
    let lock = HeldLock::hold(&tenant, "rq", raised()).await;
    let path = format!("/api/v1/namespaces/{}/pods", tenant.name());
    for metadata in [
        json!({ "name": "plain" }),
        json!({ "name": "label", "labels": { names::MIGRATION_JOB_LABEL: "none" } }),
        json!({ "name": "time", "creationTimestamp": "2099-01-01T00:00:00Z" }),
        json!({
            "name": "all", "creationTimestamp": "2099-01-01T00:00:00Z",
            "labels": { names::MIGRATION_JOB_LABEL: "none", "kubevirt.io": "virt-launcher" },
            "annotations": { names::MIGRATION_NAME_ANNOTATION: "mig" },
        }),
    ] {
        let pod = serde_json::to_value(intruder(metadata)).unwrap();
        let answer = tries(&editor, Method::POST, &path, call::JSON, &pod).await;
        assert_eq!(answer.code, 403, "{answer:?}");
        // Argo and others try again only when they read this.
        assert!(answer.message().contains("exceeded quota"), "{answer:?}");
    }
    // By way of a workload that a controller creates pods for.
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "set" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "set" } },
            "template": { "metadata": { "labels": { "app": "set" } }, "spec": intruder(json!({})).spec },
        },
    });
    let sets = format!("/apis/apps/v1/namespaces/{}/replicasets", tenant.name());
    assert!(tries(&editor, Method::POST, &sets, call::JSON, &set).await.is_ok());
    let told = kube::runtime::watcher::Config::default().fields("reason=FailedCreate");
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let locked_out = |events: &[Event]| {
        events
            .iter()
            .any(|event| event.message.as_deref().is_some_and(|text| text.contains("exceeded quota")))
    };
    wait::wait_for_all(&events, told, SOON, "the ReplicaSet to be locked out", locked_out).await.unwrap();
    let pods = tenant.pods.list(&Default::default()).await.unwrap().items.len();
    assert_eq!(pods, 3);
    assert!(lock.is_held().await, "all the time");
    lock.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_evictions_and_changes_are_never_refused_by_a_lock() {
    let (tenant, editor) = scene("free").await;
    let lock = HeldLock::hold(&tenant, "rq", raised()).await;
    let pods = format!("/api/v1/namespaces/{}/pods", tenant.name());
    let label = json!({ "metadata": { "labels": { "changed": "yes" } } });
    let ready = json!({ "status": { "message": "written" } });
    let evict = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "two" },
        "deleteOptions": { "gracePeriodSeconds": 0 },
    });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "own" } });
    let claim = json!({ "metadata": { "name": "own" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
    }});
    let at_once = json!({ "gracePeriodSeconds": 0 });
    let (namespaced, admin) = (format!("/api/v1/namespaces/{}", tenant.name()), tenant.bed.admin_identity());
    for (who, method, path, content, body) in [
        (&editor, Method::PATCH, format!("{pods}/one"), call::MERGE, &label),
        (admin, Method::PATCH, format!("{pods}/one/status"), call::MERGE, &ready),
        (&editor, Method::POST, format!("{pods}/two/eviction"), call::JSON, &evict),
        (&editor, Method::DELETE, format!("{pods}/one"), call::JSON, &at_once),
        (&editor, Method::DELETE, format!("{pods}?labelSelector=app%3Down"), call::JSON, &at_once),
        (&editor, Method::POST, format!("{namespaced}/configmaps"), call::JSON, &map),
        (&editor, Method::POST, format!("{namespaced}/persistentvolumeclaims"), call::JSON, &claim),
    ] {
        let answer = tries(who, method.clone(), &path, content, body).await;
        assert!(answer.is_ok(), "{method} {path}: {answer:?}");
    }
    let gone = |pods: &[Pod]| pods.is_empty();
    wait::wait_for_all(&tenant.pods, Default::default(), SOON, "all pods to be gone", gone).await.unwrap();
    assert!(lock.is_held().await, "all the time");
    lock.release().await;
}
