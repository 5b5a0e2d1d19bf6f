//! What the controller's account may write of ClusterResourceQuotas, and nothing else of them.

use http::Method;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, Response, call, post};

use super::stand_in::openshift;

const ALL: &str = "/apis/quota.openshift.io/v1/clusterresourcequotas";

fn assert_denied(answer: &Response, what: &Value) {
    assert!(answer.code == 403 && answer.message().contains(names::ACCOUNT_DENIED), "{what}: {answer:?}");
}

fn quota(name: &str, owner: &str, hard: Value) -> Value {
    let owner = json!({ "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota", "name": owner,
        "uid": "11111111-1111-1111-1111-111111111111", "controller": true, "blockOwnerDeletion": true });
    json!({ "apiVersion": "quota.openshift.io/v1", "kind": "ClusterResourceQuota",
        "spec": { "quota": { "hard": hard }, "selector": { "labels": { "matchLabels": { "a": "b" } } } },
        "metadata": { "name": name, "labels": { "aaq.kubevirt.io": "true" }, "ownerReferences": [owner] } })
}

#[tokio::test]
async fn the_controllers_token_writes_managed_ones_alone() {
    let bed = openshift().await.bed;
    let identity = bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await.unwrap();
    let (thief, admin) = (identity.client().unwrap(), bed.admin().unwrap());
    let dry = format!("{ALL}?dryRun=All");
    let (right, services) = (names::managed_cluster_quota("stolen"), json!({ "services": "1" }));
    let mut unowned = quota(&right, "stolen", services.clone());
    unowned["metadata"]["ownerReferences"] = json!([]);
    let mut of_a_namespace = quota(&right, "stolen", services.clone());
    of_a_namespace["metadata"]["ownerReferences"][0]["kind"] = json!("ApplicationAwareResourceQuota");
    let mut staying = quota(&right, "stolen", services.clone());
    staying["metadata"]["finalizers"] = json!(["example.com/stay"]);
    let wrong = [
        quota("crq", "stolen", services.clone()),
        quota(&names::managed_quota("stolen"), "stolen", services.clone()),
        quota(&right, "other", services.clone()),
        quota(&right, "stolen", json!({ "services": "1", "pods": "0" })),
        quota(&right, "stolen", json!({ "requests.cpu": "0" })),
        unowned,
        of_a_namespace,
        staying,
    ];
    for object in &wrong {
        assert_denied(&post(&thief, &dry, object).await.unwrap(), object);
        assert!(post(&admin, &dry, object).await.unwrap().is_ok(), "it is this policy that refuses");
    }
    let answer = post(&thief, &dry, &quota(&right, "stolen", services.clone())).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");

    // What there is: one of others by such a name, and one of others.
    let mut foreign = quota(&right, "stolen", services.clone());
    foreign["metadata"] = json!({ "name": right });
    let mut other = foreign.clone();
    other["metadata"] = json!({ "name": "crq" });
    for object in [&foreign, &other] {
        assert!(post(&admin, ALL, object).await.unwrap().is_ok(), "{object}");
    }
    for name in [&*right, "crq"] {
        let uri = format!("{ALL}/{name}?dryRun=All");
        let patch = quota(name, "stolen", services.clone());
        assert_denied(&call(&thief, Method::PATCH, &uri, MERGE, &patch).await.unwrap(), &patch);
        assert_denied(&call(&thief, Method::DELETE, &uri, JSON, &json!({})).await.unwrap(), &json!(name));
        let status = format!("{ALL}/{name}/status?dryRun=All");
        let answer = call(&thief, Method::PATCH, &status, MERGE, &json!({ "status": {} })).await.unwrap();
        assert_eq!(answer.code, 403, "{answer:?}");
    }
    // RBAC gives the webhook none of this.
    let webhook = bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap();
    let answer = post(&webhook.client().unwrap(), &dry, &quota(&right, "stolen", services)).await.unwrap();
    assert_eq!(answer.code, 403, "{answer:?}");
}
