//! Pods that state none, or only some, of the amounts that a quota limits: the second user story of application-aware-quota.
//! A ResourceQuota refuses them. `examples/best-effort` has the files.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice_e2e::call::post;
use sluice_testbed::wait;

use crate::context::{SOON, shared};
use crate::team::Team;

const QUOTA: &str = include_str!("../../../../examples/best-effort/10-quota.yaml");
const PODS: &str = include_str!("../../../../examples/best-effort/20-pods.yaml");

/// The documents of a file, in this namespace.
fn documents(text: &str, namespace: &str) -> Vec<Value> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    for document in &mut documents {
        document["metadata"]["namespace"] = json!(namespace);
    }
    documents
}

/// A pod that states everything, which both quotas let in.
fn complete() -> Value {
    let amounts = json!({ "cpu": "200m", "memory": "64Mi" });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "complete" },
        "spec": { "containers": [{
            "name": "main", "image": "none", "resources": { "requests": amounts, "limits": amounts },
        }]},
    })
}

#[tokio::test]
async fn pods_that_state_none_or_some_of_the_amounts_go() {
    let team = Team::on(shared().await.bed, "best-effort").await;
    let quota = &documents(QUOTA, &team.namespace.name)[0];
    let path = format!(
        "/apis/aaq.kubevirt.io/v1alpha1/namespaces/{}/applicationawareresourcequotas",
        team.namespace
    );
    assert!(post(&team.client, &path, quota).await.unwrap().is_ok());
    for pod in documents(PODS, &team.namespace.name).iter().chain([&complete()]) {
        let created = team.create(pod).await;
        assert!(created.is_ok(), "{created:?}");
        team.until_released(pod["metadata"]["name"].as_str().unwrap()).await;
    }
    for (key, used) in [
        ("requests.cpu", "300m"),
        ("limits.cpu", "200m"),
        ("requests.memory", "160Mi"),
        ("limits.memory", "192Mi"),
    ] {
        team.until_used("compute", key, used).await;
    }
}

#[tokio::test]
async fn a_native_quota_with_the_same_keys_refuses_the_same_pods() {
    let team = Team::on(shared().await.bed, "native").await;
    let hard = documents(QUOTA, &team.namespace.name)[0]["spec"]["hard"].clone();
    let quota =
        serde_json::from_value(json!({ "metadata": { "name": "compute" }, "spec": { "hard": hard } }));
    let quotas: Api<ResourceQuota> = Api::namespaced(team.client.clone(), &team.namespace.name);
    quotas.create(&PostParams::default(), &quota.unwrap()).await.unwrap();
    let counted = |quota: Option<&ResourceQuota>| {
        let used = quota.and_then(|quota| quota.status.as_ref()?.used.as_ref());
        used.is_some_and(|used| used.len() == 4)
    };
    wait::wait_for(&quotas, "compute", SOON, "its first status", counted).await.unwrap();
    let missing = [
        "must specify limits.cpu for: main; limits.memory for: main; requests.cpu for: main; requests.memory for: main",
        "must specify limits.cpu for: main; limits.memory for: main",
        "must specify limits.cpu for: main; requests.cpu for: main",
    ];
    for (pod, missing) in documents(PODS, &team.namespace.name).iter().zip(missing) {
        let refused = team.create(pod).await;
        assert_eq!(refused.code, 403, "{refused:?}");
        assert!(refused.message().contains(&format!("failed quota: compute: {missing}")), "{refused:?}");
    }
    let created = team.create(&complete()).await;
    assert!(created.is_ok(), "{created:?}");
}
