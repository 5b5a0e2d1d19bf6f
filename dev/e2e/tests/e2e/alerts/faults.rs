//! Faults that are more than the end of a process: the objects of each, as its runbook shows them.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{APPLY, MERGE, call, get};
use sluice_e2e::objects::TARGETED;
use sluice_e2e::tenant::{SOON, Tenant};
use sluice_engine::headroom::MARK;
use sluice_testbed::kubevirt::MigrationScript;
use sluice_testbed::proxy::{FaultProxy, Recorded, Rule};
use sluice_testbed::{TestNamespace, wait};
use tokio::time::interval;

use super::scene::{ADMISSION, Scene};
use crate::context::kubectl;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
/// The Lease of an API server whose address is not known.
pub const HIDDEN: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/apiserver-hidden";
/// How many quotas another client writes: each is put right ever more seldom.
const OVERWRITTEN: [&str; 4] = ["compute", "memory", "objects", "storage"];
const FROZEN: &str = "frozen-pods";

async fn example(scene: &Scene<'_>, files: &[&str]) {
    for file in files {
        let text = std::fs::read_to_string(format!("{EXAMPLES}/{file}")).unwrap();
        scene.bed.apply(&text).await.unwrap();
    }
}

/// Pods may be created in it.
async fn namespace(scene: &Scene<'_>, name: &str, labels: &[(&str, &str)]) {
    let labels: Value = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    scene.bed.apply_objects([namespace]).await.unwrap();
    kubectl(scene.bed, &["-n", name, "wait", "--for=create", "--timeout=2m", "serviceaccount/default"]).await;
}

fn quota(namespace: &str, name: &str, hard: &Value) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
        "metadata": { "name": name, "namespace": namespace }, "spec": { "hard": hard },
    })
}

fn quota_path(namespace: &str, name: &str) -> String {
    format!("/apis/{}/namespaces/{namespace}/{}/{name}", names::API_VERSION, names::ARQS)
}

/// The team of the examples, whose pods fill its quota but for one that never goes.
pub async fn team(scene: &Scene<'_>) {
    namespace(scene, "team-a", TARGETED).await;
    example(scene, &["00-namespace.yaml", "01-priority.yaml", "10-quota.yaml"]).await;
    let eight = json!({ "spec": { "hard": { "requests.cpu": "8" } } });
    scene.patch(&quota_path("team-a", "compute"), &eight).await;
    example(scene, &["20-web.yaml", "30-import.yaml", "31-train.yaml", "40-urgent.yaml"]).await;
    let full = "--for=jsonpath={.status.used.requests\\.cpu}=8";
    kubectl(scene.bed, &["-n", "team-a", "wait", "arq/compute", full, "--timeout=2m"]).await;
    example(scene, &["50-huge.yaml"]).await;
}

/// A namespace whose pods wait.
pub async fn full(scene: &Scene<'_>) {
    namespace(scene, "team-e", TARGETED).await;
    scene.bed.apply_objects([quota("team-e", "none", &json!({ "pods": "0" }))]).await.unwrap();
}

/// A pod that comes into it.
pub async fn come_late(scene: &Scene<'_>) {
    let pod = pod("team-e", "late");
    scene.bed.apply_objects([pod]).await.unwrap();
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
        "spec": { "containers": [{
            "name": "main", "image": "none", "resources": { "requests": { "cpu": "1" } },
        }] },
    })
}

/// A policy of others forbids what the controller does, in a namespace with room for the pod that waits.
pub async fn freeze(scene: &Scene<'_>) {
    namespace(scene, "team-d", TARGETED).await;
    let none = quota("team-d", "compute", &json!({ "pods": "0", "requests.cpu": "1" }));
    scene.bed.apply_objects([none, pod("team-d", "one")]).await.unwrap();
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"],
    });
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": "team-d" } });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": FROZEN },
        "spec": {
            "matchConstraints": { "resourceRules": [rule], "namespaceSelector": here },
            "validations": [{ "expression": "false", "message": "pods of this namespace may not be changed" }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": FROZEN }, "spec": { "policyName": FROZEN, "validationActions": ["Deny"] },
    });
    scene.bed.apply_objects([policy, binding]).await.unwrap();
    let path = "/api/v1/namespaces/team-d/pods/one?dryRun=All";
    let change = json!({ "metadata": { "labels": { "a": "b" } } });
    let refused = || async {
        let answer = call(&scene.client, Method::PATCH, path, MERGE, &change).await.ok()?;
        answer.message().contains("may not be changed").then_some(())
    };
    wait::eventually(SOON, refused, "changes of pods to be refused").await.unwrap();
    scene.patch(&quota_path("team-d", "compute"), &json!({ "spec": { "hard": { "pods": "2" } } })).await;
}

pub async fn thaw(scene: &Scene<'_>) {
    for kind in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        scene.delete(&format!("{ADMISSION}/{kind}/{FROZEN}")).await;
    }
}

/// A migration for which less is granted than it takes.
pub async fn block(scene: &Scene<'_>) {
    namespace(scene, "team-b", &[]).await;
    example(scene, &["migration/10-quota.yaml", "migration/20-vm.yaml"]).await;
    scene.bed.kubevirt().unwrap().get("team-b", "web").until_running().await.unwrap();
    let mut policy = std::fs::read_to_string(format!("{EXAMPLES}/migration/31-policy.yaml")).unwrap();
    policy = policy.replace(
        "mode: Unlimited",
        "mode: PerNamespace\n    resources: { pods: \"1\", requests.cpu: \"1\", requests.memory: 100Mi }",
    );
    scene.bed.apply(&policy).await.unwrap();
    let full = "--for=jsonpath={.status.used.pods}=1";
    kubectl(scene.bed, &["-n", "team-b", "wait", "resourcequota/one-vm", full, "--timeout=2m"]).await;
    example(scene, &["migration/40-migration.yaml"]).await;
}

pub async fn unblock(scene: &Scene<'_>) {
    kubectl(scene.bed, &["delete", "headroompolicy", "migrations-of-team-b"]).await;
    grant(scene).await;
    let done = "--for=jsonpath={.status.phase}=Succeeded";
    let migration = "virtualmachineinstancemigration/move-web";
    kubectl(scene.bed, &["-n", "team-b", "wait", migration, done, "--timeout=2m"]).await;
}

/// What migrations of a team may take.
pub async fn grant(scene: &Scene<'_>) {
    namespace(scene, "team-b", &[]).await;
    example(scene, &["migration/31-policy.yaml"]).await;
}

/// The address at which API servers can be asked, as a cluster shows it. The bed's API server keeps none, since an
/// EndpointSlice takes no address of loopback; Sluice reads the slice whose name is `kubernetes` alone.
pub async fn one_address(scene: &Scene<'_>) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "balancer", "namespace": "default", "labels": { "kubernetes.io/service-name": "kubernetes" },
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["192.0.2.1"], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": 443, "protocol": "TCP" }],
    });
    scene.bed.apply_objects([slice]).await.unwrap();
}

/// An API server that has no address renews its Lease.
pub async fn hide(client: Client, often: Duration) {
    let mut tick = interval(often);
    loop {
        tick.tick().await;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "apiserver-hidden", "labels": { "apiserver.kubernetes.io/identity": "kube-apiserver" },
            },
            "spec": {
                "holderIdentity": "apiserver-hidden", "leaseDurationSeconds": 3600,
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        });
        let path = format!("{HIDDEN}?fieldManager=test&force=true");
        let answer = call(&client, Method::PATCH, &path, APPLY, &lease).await.unwrap();
        assert!(answer.is_ok(), "{answer:?}");
    }
}

fn is_restore(request: &Recorded, namespace: &str) -> bool {
    let mark = request.body.as_ref().and_then(|body| body.pointer("/status/hard")?.get(MARK));
    request.method == Method::PATCH
        && request.path.contains(&format!("/namespaces/{namespace}/resourcequotas/"))
        && !mark.is_some_and(Value::is_string)
}

/// A webhook whose writes pass but for those that put a quota back; a migration for which it raises one. It goes on until
/// [`until_clear`]: with the end of a pod kube-controller-manager would put the quota back.
pub async fn leave_raised(scene: &Scene<'_>, proxy: &FaultProxy) {
    namespace(scene, "team-f", &[]).await;
    let tenant = Tenant {
        bed: scene.bed,
        kubevirt: scene.bed.kubevirt().unwrap(),
        namespace: TestNamespace { name: "team-f".to_owned() },
        client: scene.client.clone(),
        quotas: Api::namespaced(scene.client.clone(), "team-f"),
        pods: Api::namespaced(scene.client.clone(), "team-f"),
    };
    let vm = tenant.kubevirt.vm("team-f", "web").script(MigrationScript::Hold).start().await.unwrap();
    tenant.full_quota("memory", &["requests.memory"]).await;
    tenant.unlimited().await;
    proxy.add(Rule::answer(503).unwrap().when(|request| is_restore(request, "team-f")));
    vm.migrate().await.unwrap().until_target_pod().await.unwrap();
}

/// No quota is raised any more.
pub async fn until_clear(scene: &Scene<'_>) {
    scene.bed.kubevirt().unwrap().get("team-f", "web").release().await.unwrap();
    let clear = || async {
        let quotas = get(&scene.client, "/api/v1/resourcequotas").await.ok()?.body;
        let quotas = quotas["items"].as_array()?;
        quotas.iter().all(|quota| quota["spec"]["hard"] == quota["status"]["hard"]).then_some(())
    };
    wait::eventually(SOON, clear, "every quota to be restored").await.unwrap();
}

/// Quotas whose status another client writes; where they are.
pub async fn overwritten(scene: &Scene<'_>) -> [String; OVERWRITTEN.len()] {
    namespace(scene, "team-c", TARGETED).await;
    for name in OVERWRITTEN {
        scene.bed.apply_objects([quota("team-c", name, &json!({ "pods": "5" }))]).await.unwrap();
    }
    OVERWRITTEN.map(|name| quota_path("team-c", name))
}

pub async fn overwrite(client: Client, path: String, often: Duration) {
    let status = format!("{path}/status?fieldManager=aaq-controller");
    let theirs = json!({ "status": { "used": { "pods": "3" } } });
    insist(client, path, status, "/status/used/pods", theirs, often).await;
}

pub async fn contest(client: Client, often: Duration) {
    let path = format!("{ADMISSION}/validatingadmissionpolicybindings/{}", names::GUARD_POLICY);
    let write = format!("{path}?fieldManager=argocd");
    let labels = json!({ "matchLabels": { "a": "b" } });
    let theirs = json!({ "spec": { "matchResources": { "namespaceSelector": labels } } });
    let pointer = "/spec/matchResources/namespaceSelector/matchLabels/a";
    insist(client, path, write, pointer, theirs, often).await;
}

/// Writes whenever the object is not as this client wants it.
async fn insist(client: Client, path: String, write: String, pointer: &str, theirs: Value, often: Duration) {
    let mut tick = interval(often);
    loop {
        tick.tick().await;
        // Either may fail while processes of Sluice are replaced; the next one is soon.
        let Ok(now) = get(&client, &path).await else { continue };
        if now.body.pointer(pointer) != theirs.pointer(pointer) {
            let _ = call(&client, Method::PATCH, &write, MERGE, &theirs).await;
        }
    }
}
