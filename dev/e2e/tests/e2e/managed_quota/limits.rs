//! What is limited and counted: the keys of upstream's suite.

use http::Method;
use serde_json::json;
use sluice_e2e::call::{JSON, call};
use sluice_e2e::objects;

use super::team::{ARQ_COUNT, Managed, counting};
use crate::context::idle;

#[tokio::test]
async fn objects_are_counted_in_the_status_of_the_quota_and_refused_by_the_managed_one() {
    let managed = Managed::on(counting().await.bed, "objects").await;
    let (team, gold) = (&managed.team, "gold.storageclass.storage.k8s.io");
    let (claims, storage) = (format!("{gold}/persistentvolumeclaims"), format!("{gold}/requests.storage"));
    let hard = [
        (ARQ_COUNT, "2"),
        ("configmaps", "10"),
        ("count/replicasets.apps", "5"),
        (&claims, "10"),
        (&storage, "10Gi"),
        ("persistentvolumeclaims", "10"),
        ("replicationcontrollers", "10"),
        ("requests.storage", "10Gi"),
        ("resourcequotas", "2"),
        ("secrets", "1"),
        ("services", "10"),
        ("services.loadbalancers", "1"),
        ("services.nodeports", "1"),
    ];
    team.quota("tq", &[&hard[..], &[("pods", "5"), ("cpu", "1"), ("hugepages-2Mi", "4Mi")]].concat()).await;
    managed.until_limited("tq", &hard).await;
    // Each namespace has a ConfigMap with the authority of the API server.
    managed.until_used("tq", &[(ARQ_COUNT, Some("1")), ("configmaps", Some("1")), ("pods", Some("0"))]).await;
    managed.until_used("tq", &[("resourcequotas", Some("1")), ("secrets", Some("0"))]).await;

    let service = |name: &str, kind: &str| {
        json!({
            "metadata": { "name": name }, "spec": { "type": kind, "ports": [{ "port": 80 }] },
        })
    };
    managed.create("services", &service("inside", "ClusterIP")).await;
    managed.create("services", &service("node", "NodePort")).await;
    managed.until_used("tq", &[("services", Some("2")), ("services.nodeports", Some("1"))]).await;
    let answer = managed.post("services", &service("balanced", "LoadBalancer")).await;
    assert!(answer.code == 403 && answer.message().contains("exceeded quota: tq-non-sched"), "{answer:?}");

    managed.create("secrets", &json!({ "metadata": { "name": "one" } })).await;
    managed.until_used("tq", &[("secrets", Some("1"))]).await;
    let answer = managed.post("secrets", &json!({ "metadata": { "name": "two" } })).await;
    assert!(answer.code == 403 && answer.message().contains("secrets=1"), "{answer:?}");

    let claim = json!({ "metadata": { "name": "disk" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "storageClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } } });
    managed.create("persistentvolumeclaims", &claim).await;
    managed
        .until_used("tq", &[("persistentvolumeclaims", Some("1")), ("requests.storage", Some("1Gi"))])
        .await;
    managed.until_used("tq", &[(&claims, Some("1")), (&storage, Some("1Gi"))]).await;

    // The second is the last: the third is refused by the first one's managed quota.
    team.quota("second", &[("pods", "1")]).await;
    managed.until_used("tq", &[(ARQ_COUNT, Some("2"))]).await;
    let third = objects::quota("third", &[("pods", "1")]);
    let refused = objects::create(&team.client, &team.namespace.name, &third).await.unwrap_err();
    assert!(refused.to_string().contains("exceeded quota: tq-non-sched"), "{refused}");

    for gone in ["services/inside", "services/node", "secrets/one"] {
        let answer = call(&team.client, Method::DELETE, &team.path(gone), JSON, &json!({})).await.unwrap();
        assert_eq!(answer.code, 200, "{gone}: {answer:?}");
    }
    let none = [("services", Some("0")), ("services.nodeports", Some("0")), ("secrets", Some("0"))];
    managed.until_used("tq", &none).await;
    let shown = team.quotas.get("tq").await.unwrap().status.unwrap().requests.unwrap();
    assert!(shown.contains("pods: 0/5") && shown.contains("requests.storage: 1Gi/10Gi"), "{shown}");
    managed.until_told("tq", &[]).await;
}

#[tokio::test]
async fn an_edit_of_limits_is_followed_and_no_version_of_the_status_has_a_wrong_zero() {
    let managed = Managed::on(idle().await.bed, "edits").await;
    managed.config_map("a").await;
    managed.config_map("b").await;
    let recording = managed.record("count/configmaps").await;
    managed.team.quota("q", &[("count/configmaps", "5"), ("pods", "3")]).await;
    // With that of the API server.
    managed.until_used("q", &[("count/configmaps", Some("3"))]).await;
    managed.edit("q", json!({ "hard": { "count/configmaps": "15" } })).await;
    managed.until_limited("q", &[("count/configmaps", "15")]).await;
    managed.edit("q", json!({ "hard": { "services": "1", "count/configmaps": "16" } })).await;
    managed.until_limited("q", &[("count/configmaps", "16"), ("services", "1")]).await;
    managed.until_used("q", &[("services", Some("0"))]).await;
    managed.delete_managed("q").await;
    managed.until_limited("q", &[("count/configmaps", "16"), ("services", "1")]).await;
    managed.edit("q", json!({ "hard": { "services": null } })).await;
    managed.until_limited("q", &[("count/configmaps", "16")]).await;
    // Without such keys there is no managed quota, and nothing is said of them.
    managed.edit("q", json!({ "hard": { "count/configmaps": null } })).await;
    managed.until_no_managed("q").await;
    managed.until_used("q", &[("count/configmaps", None), ("pods", Some("0"))]).await;
    managed.edit("q", json!({ "hard": { "count/configmaps": "4" } })).await;
    managed.until_used("q", &[("count/configmaps", Some("3"))]).await;
    let values = recording.until(Some("3")).await;
    let three = Some("3".to_owned());
    assert_eq!(
        values,
        [None, three.clone(), None, three],
        "absent, counted, gone with its key, counted again"
    );
}
