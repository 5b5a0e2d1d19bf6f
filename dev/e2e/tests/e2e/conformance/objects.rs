//! The life of what no gate governs: counted when it is there, refused where there is no room,
//! and free again when it is gone.

use serde_json::{Value, json};
use sluice_e2e::objects;
use sluice_testbed::wait;

use super::spec::{ARQ_COUNT, Amounts, GOLD_CLAIMS, GOLD_STORAGE, QUOTA, Spec};
use crate::context::SOON;

/// One life: objects that are created and then deleted, under the standard quota.
#[derive(Default)]
struct Life<'a> {
    name: &'a str,
    /// `api/v1/services`, for example.
    resource: &'a str,
    /// Limits in place of those of the standard quota.
    limits: Amounts<'a>,
    before: Amounts<'a>,
    objects: Vec<Value>,
    /// One more, for which there is no room.
    refused: Option<Value>,
    counted: Amounts<'a>,
}

impl Life<'_> {
    async fn passes(&self) {
        let spec = Spec::standard(self.name, self.limits).await;
        spec.until_used(QUOTA, self.before).await;
        for object in &self.objects {
            let answer = spec.post(self.resource, object).await;
            assert!(answer.is_ok(), "{object}: {answer:?}");
        }
        spec.until_used(QUOTA, self.counted).await;
        if let Some(object) = &self.refused {
            let answer = spec.post(self.resource, object).await;
            assert!(answer.code == 403 && answer.message().contains("exceeded quota"), "{answer:?}");
        }
        for object in &self.objects {
            spec.delete(self.resource, object["metadata"]["name"].as_str().unwrap()).await;
        }
        spec.until_used(QUOTA, self.before).await;
    }
}

fn named(name: &str, mut object: Value) -> Value {
    object["metadata"] = json!({ "name": name });
    object
}

fn service(name: &str, kind: &str) -> Value {
    named(name, json!({ "spec": { "type": kind, "ports": [{ "port": 80, "targetPort": 80 }] } }))
}

fn claim(class: Option<&str>) -> Value {
    let requests = json!({ "storage": "1Gi" });
    let mut spec =
        json!({ "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "resources": { "requests": requests } });
    if let Some(class) = class {
        spec["storageClassName"] = json!(class);
    }
    named("test-claim", json!({ "spec": spec }))
}

/// Of no pods.
fn owner(selector: Value) -> Value {
    let template = json!({
        "metadata": { "labels": { "name": "test" } },
        "spec": { "containers": [{ "name": "test", "image": "nginx" }] },
    });
    named("test", json!({ "spec": { "replicas": 0, "selector": selector, "template": template } }))
}

#[tokio::test]
async fn life_of_a_service() {
    let mut balanced = service("test-service-lb", "LoadBalancer");
    balanced["spec"]["allocateLoadBalancerNodePorts"] = json!(true);
    let life = Life {
        name: "service",
        resource: "api/v1/services",
        before: &[("services", "0"), ("services.nodeports", "0")],
        objects: vec![service("test-service", "ClusterIP"), service("test-service-np", "NodePort")],
        refused: Some(balanced),
        counted: &[("services", "2"), ("services.nodeports", "1"), ("services.loadbalancers", "0")],
        ..Life::default()
    };
    life.passes().await;
}

#[tokio::test]
async fn life_of_a_secret() {
    let life = Life {
        name: "secret",
        resource: "api/v1/secrets",
        limits: &[("secrets", "1")],
        before: &[("secrets", "0")],
        objects: vec![named("test-secret", json!({ "stringData": { "data-1": "value-1\n" } }))],
        refused: Some(named("another", json!({}))),
        counted: &[("secrets", "1")],
    };
    life.passes().await;
}

/// Each namespace has one with the authority of the API server.
#[tokio::test]
async fn life_of_a_config_map() {
    let life = Life {
        name: "configmap",
        resource: "api/v1/configmaps",
        limits: &[("configmaps", "2")],
        before: &[("configmaps", "1")],
        objects: vec![named("test-configmap", json!({ "data": { "a": "b" } }))],
        refused: Some(named("another", json!({}))),
        counted: &[("configmaps", "2")],
    };
    life.passes().await;
}

#[tokio::test]
async fn life_of_a_replication_controller() {
    let life = Life {
        name: "replicationcontroller",
        resource: "api/v1/replicationcontrollers",
        before: &[("replicationcontrollers", "0")],
        objects: vec![owner(json!({ "name": "test" }))],
        counted: &[("replicationcontrollers", "1")],
        ..Life::default()
    };
    life.passes().await;
}

#[tokio::test]
async fn life_of_a_replica_set() {
    let life = Life {
        name: "replicaset",
        resource: "apis/apps/v1/replicasets",
        before: &[("count/replicasets.apps", "0")],
        objects: vec![owner(json!({ "matchLabels": { "name": "test" } }))],
        counted: &[("count/replicasets.apps", "1")],
        ..Life::default()
    };
    life.passes().await;
}

#[tokio::test]
async fn life_of_a_claim() {
    let life = Life {
        name: "claim",
        resource: "api/v1/persistentvolumeclaims",
        before: &[("persistentvolumeclaims", "0"), ("requests.storage", "0"), (GOLD_CLAIMS, "0")],
        objects: vec![claim(None)],
        counted: &[("persistentvolumeclaims", "1"), ("requests.storage", "1Gi"), (GOLD_CLAIMS, "0")],
        ..Life::default()
    };
    life.passes().await;
}

#[tokio::test]
async fn life_of_a_claim_with_a_storage_class() {
    let (claims, storage) = ("persistentvolumeclaims", "requests.storage");
    let life = Life {
        name: "gold-claim",
        resource: "api/v1/persistentvolumeclaims",
        before: &[(claims, "0"), (storage, "0"), (GOLD_CLAIMS, "0"), (GOLD_STORAGE, "0")],
        objects: vec![claim(Some("gold"))],
        counted: &[(claims, "1"), (storage, "1Gi"), (GOLD_CLAIMS, "1"), (GOLD_STORAGE, "1Gi")],
        ..Life::default()
    };
    life.passes().await;
}

/// The quota counts quotas, itself too, and lets no second one in.
#[tokio::test]
async fn life_of_a_custom_resource() {
    let spec = Spec::new("custom-resource").await;
    spec.team.quota("quota-for-quotas", &[(ARQ_COUNT, "1")]).await;
    spec.until_used("quota-for-quotas", &[(ARQ_COUNT, "1")]).await;
    spec.delete("apis/aaq.kubevirt.io/v1alpha1/applicationawareresourcequotas", "quota-for-quotas").await;
    let quota = objects::quota(QUOTA, &[(ARQ_COUNT, "1"), ("pods", "5")]);
    let created =
        || async { objects::create(&spec.team.client, &spec.team.namespace.name, &quota).await.ok() };
    // The managed quota of the first one is collected a moment later.
    wait::eventually(SOON, created, "the next quota").await.unwrap();
    spec.until_used(QUOTA, &[(ARQ_COUNT, "1")]).await;
    let second = objects::quota("test-quota2", &[(ARQ_COUNT, "10")]);
    let refused = objects::create(&spec.team.client, &spec.team.namespace.name, &second).await.unwrap_err();
    assert!(refused.to_string().contains("exceeded quota: test-quota-non-sched"), "{refused}");
}
