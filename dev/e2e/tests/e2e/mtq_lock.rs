//! A lock object as managed-tenant-quota makes it (`docs/predecessors.md`, *The lock of MTQ*), answered by our webhook.

use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use sluice_api::{Endpoint, names};
use sluice_e2e::call::{JSON, MERGE, Response, call, post};
use sluice_e2e::objects;
use sluice_testbed::wait;

use crate::context::{SOON, shared};

const PODS: &str = "creations of pods are not allowed in this namespace, please try again.";
const QUOTAS: &str = "modifications to resourceQuotas are not permitted in this namespace, please try again.";
const MIGRATION_QUOTAS: &str = "modifications,creation or deletion of virtualMachineMigrationResourceQuotas are not permitted in this namespace, please try again.";

/// The lock of a namespace.
fn lock(namespace: &str, url: &str, bundle: &ByteString) -> Value {
    let name = format!("lock.{namespace}.com");
    let rule = |operations: &[&str], resource: &str| json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": [resource], "scope": "Namespaced"});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {"mtq-lock-server": "mtq-lock-server"}},
        "webhooks": [{
            "name": name, "admissionReviewVersions": ["v1", "v1beta1"],
            "failurePolicy": "Fail", "sideEffects": "None", "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "clientConfig": {"url": url, "caBundle": bundle},
            "rules": [
                rule(&["UPDATE"], "resourcequotas"),
                rule(&["DELETE", "CREATE"], "virtualmachinemigrationresourcequotas"),
                rule(&["CREATE"], "pods"),
            ],
        }],
    })
}

fn denied(answer: &Response, lock: &str, message: &str) {
    assert_eq!(answer.code, 403, "{answer:?}");
    let start = format!(
        "admission webhook \"{lock}\" denied the request: Migration process is currently being handled by the Managed Quota controller, and as a result, {message}"
    );
    assert!(answer.message().ends_with(&start), "{}", answer.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_object_of_managed_tenant_quota_denies_with_its_texts() {
    let shared = shared().await;
    let (bed, client) = (shared.bed, shared.bed.admin().unwrap());
    let namespace = bed.namespace("locked", &[]).await.unwrap();
    let (core, mtq) = (
        format!("/api/v1/namespaces/{namespace}"),
        format!("/apis/mtq.kubevirt.io/v1alpha1/namespaces/{namespace}/{}", names::VMMRQS),
    );
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "rq"}, "spec": {"hard": {"pods": "9"}}});
    assert_eq!(post(&client, &format!("{core}/resourcequotas"), &quota).await.unwrap().code, 201);
    let vmmrq = |name: &str| json!({"apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota", "metadata": {"name": name}, "spec": {"additionalMigrationResources": {"pods": 1}}});
    assert_eq!(post(&client, &mtq, &vmmrq("before")).await.unwrap().code, 201);

    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let bundle = secrets.get(names::CA_SECRET).await.unwrap().data.unwrap()[names::CA_BUNDLE].clone();
    let address = shared.installation.webhook_address();
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let path = shared.installation.webhook_path(Endpoint::MtqLock.path()).await.unwrap();
    let object = lock(&namespace.name, &format!("https://{address}{path}"), &bundle);
    assert_eq!(post(&client, configurations, &object).await.unwrap().code, 201);
    let name = format!("lock.{namespace}.com");

    // Locked as soon as the API server knows of it.
    let pod = serde_json::to_value(objects::pod("p", &[])).unwrap();
    let dry = format!("{core}/pods?dryRun=All");
    let first = || async {
        let answer = post(&client, &dry, &pod).await.ok()?;
        (!answer.is_ok()).then_some(answer)
    };
    denied(&wait::eventually(SOON, first, "the lock to be in force").await.unwrap(), &name, PODS);
    let target = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": ObjectMeta { name: Some("t".to_owned()), labels: Some([(names::MIGRATION_JOB_LABEL.to_owned(), "u".to_owned())].into()), ..ObjectMeta::default() },
        "spec": {"containers": [{"name": "main", "image": "none"}]}});
    denied(&post(&client, &dry, &target).await.unwrap(), &name, PODS);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let answer =
        call(&client, Method::PATCH, &format!("{core}/resourcequotas/rq"), MERGE, &label).await.unwrap();
    denied(&answer, &name, QUOTAS);
    denied(&post(&client, &mtq, &vmmrq("during")).await.unwrap(), &name, MIGRATION_QUOTAS);
    let answer = call(&client, Method::DELETE, &format!("{mtq}/before"), JSON, &json!({})).await.unwrap();
    denied(&answer, &name, MIGRATION_QUOTAS);
    // managed-tenant-quota itself, where it was installed before us.
    let mtq_controller = format!("system:serviceaccount:{}:mtq-controller", names::INSTALL_NAMESPACE);
    let groups = ["system:masters", "system:serviceaccounts"];
    let itself = bed.client_as_user(&mtq_controller, &groups).unwrap().client().unwrap();
    let answer =
        call(&itself, Method::PATCH, &format!("{core}/resourcequotas/rq"), MERGE, &label).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    // Not locked: an update of the amounts, and other namespaces.
    let answer = call(&client, Method::PATCH, &format!("{mtq}/before"), MERGE, &label).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let other = bed.namespace("unlocked", &[]).await.unwrap();
    let path = format!("/api/v1/namespaces/{other}/pods?dryRun=All");
    assert_eq!(post(&client, &path, &pod).await.unwrap().code, 201);
    let answer =
        call(&client, Method::DELETE, &format!("{configurations}/{name}"), JSON, &json!({})).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
}
