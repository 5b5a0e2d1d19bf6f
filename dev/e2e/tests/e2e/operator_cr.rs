//! What `AAQ` and `MTQ` ask of the installation's Deployments, and what is said of it in their status. The operator makes
//! the Deployments; simulated kubelets run their pods, and the processes run beside the cluster.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::AuditEventExt as _;
use sluice_e2e::call::{APPLY, JSON, MERGE, Response, call, get};
use sluice_e2e::scrape;
use sluice_e2e::wire::Wire;
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::{SOON, kubectl};

/// The numbers of the operator: what a stranger edits is back in this time, and so long nothing is written.
pub const DRIFT: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_secs(30);
/// A label that all simulated nodes have.
const SIMULATED: &str = "sluice.dev/simulated";

pub const AAQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";
const MTQS: &str = "/apis/mtq.kubevirt.io/v1alpha1/mtqs";

pub async fn created(client: &Client, path: &str, kind: &str, name: &str) {
    let version = path.trim_start_matches("/apis/").rsplit_once('/').unwrap().0;
    let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": {} });
    // The operator makes one of this name, too.
    let one = format!("{path}/{name}?fieldManager=test&force=true");
    let tries =
        || async { call(client, Method::PATCH, &one, APPLY, &object).await.ok().filter(Response::is_ok) };
    wait::eventually(SOON, tries, &format!("{kind} {name} to be created")).await.unwrap();
}

pub async fn patch(client: &Client, path: &str, patch: &Value) {
    let answer = call(client, Method::PATCH, path, MERGE, patch).await.unwrap();
    assert!(answer.is_ok(), "{path}: {answer:?}");
}

pub fn deployment_path(name: &str) -> String {
    format!("/apis/apps/v1/namespaces/{}/deployments/{name}", names::INSTALL_NAMESPACE)
}

/// Waits until the pods of a Deployment are asked for as `is` says.
pub async fn until_pods(bed: &Bed, name: &str, deadline: Duration, what: &str, is: impl Fn(&Value) -> bool) {
    let deployments: Api<Deployment> = Api::namespaced(bed.admin().unwrap(), names::INSTALL_NAMESPACE);
    let pod = |deployment: &Deployment| {
        serde_json::to_value(deployment).unwrap()["spec"]["template"]["spec"].clone()
    };
    let seen = |deployment: Option<&Deployment>| deployment.is_some_and(|deployment| is(&pod(deployment)));
    wait::wait_for(&deployments, name, deadline, what, seen).await.unwrap();
}

/// Waits until the status has this phase and this condition.
pub async fn until_told(
    client: &Client,
    path: &str,
    phase: &str,
    (kind, status, reason): (&str, &str, &str),
) {
    let told = || async {
        let object = get(client, path).await.ok()?.body;
        let conditions = object["status"]["conditions"].as_array()?.clone();
        let said = conditions.iter().find(|said| said["type"] == kind)?.clone();
        let is = object["status"]["phase"] == phase && said["status"] == status && said["reason"] == reason;
        is.then_some(())
    };
    let what = format!("{path} to be {phase} with {kind}={status} for {reason}");
    wait::eventually(SOON, told, &what).await.unwrap();
}

pub async fn until_condition(bed: &Bed, object: &str, condition: &str) {
    kubectl(bed, &["wait", object, &format!("--for=condition={condition}"), "--timeout=120s"]).await;
}

/// Sluice, on nodes that run the pods of its Deployments.
pub async fn installed(bed: &Bed) -> Running<'_> {
    bed.add_nodes(2, &[("cpu", "8"), ("memory", "16Gi")]).await.unwrap();
    Running::on(bed, Setup::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployments_follow_the_aaq_and_nothing_is_written_when_nothing_differs() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    until_told(&client, &aaq, "Deployed", ("FieldsNotInForce", "False", "AllInForce")).await;

    let infra = json!({ "nodeSelector": { SIMULATED: "true" }, "tolerations": [{ "key": "k", "operator": "Exists" }] });
    let class = "system-node-critical";
    let asked = json!({ "infra": infra, "imagePullPolicy": "Always", "priorityClass": class });
    patch(&client, &aaq, &json!({ "spec": asked })).await;
    let is_placed = |pod: &Value| {
        pod["priorityClassName"] == class
            && pod["nodeSelector"] == infra["nodeSelector"]
            && pod["tolerations"] == infra["tolerations"]
            && pod["containers"][0]["imagePullPolicy"] == "Always"
    };
    for name in [names::CONTROLLER, names::WEBHOOK] {
        until_pods(&bed, name, SOON, "what the AAQ asks", is_placed).await;
    }

    let edited = json!({ "spec": { "template": { "spec": { "nodeSelector": { "pool": "mine" } } } } });
    patch(&client, &deployment_path(names::WEBHOOK), &edited).await;
    until_pods(&bed, names::WEBHOOK, DRIFT, "what the AAQ asks, again", is_placed).await;
    until_condition(&bed, "aaq/aaq", "Progressing=False").await;

    let nothing = json!({ "infra": null, "imagePullPolicy": null, "priorityClass": null });
    patch(&client, &aaq, &json!({ "spec": nothing })).await;
    let is_shipped = |pod: &Value| {
        pod["priorityClassName"] == "system-cluster-critical"
            && pod["nodeSelector"].is_null()
            && pod["tolerations"].is_null()
            && pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    };
    for name in [names::CONTROLLER, names::WEBHOOK] {
        until_pods(&bed, name, SOON, "what is shipped", is_shipped).await;
    }
    until_rolled(&bed).await;
    until_condition(&bed, "aaq/aaq", "Progressing=False").await;
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "False", "DeployCompleted")).await;
    let quiet_from = Timestamp::now();
    tokio::time::sleep(QUIET).await;
    assert_eq!(writes_since(&bed, quiet_from).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_mtq_asks_holds_without_an_aaq_of_a_user() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, MTQS, "MTQ", "mtq").await;
    until_condition(&bed, "mtq/mtq", "Available").await;
    let mtq = format!("{MTQS}/mtq");
    let tolerated = json!([{ "key": "CriticalAddonsOnly", "operator": "Exists" }]);
    let infra = json!({ "nodeSelector": { SIMULATED: "true" }, "tolerations": tolerated });
    patch(&client, &mtq, &json!({ "spec": { "infra": infra } })).await;
    for name in [names::CONTROLLER, names::WEBHOOK] {
        until_pods(&bed, name, SOON, "what the MTQ asks", |pod| {
            pod["nodeSelector"] == infra["nodeSelector"] && pod["tolerations"] == infra["tolerations"]
        })
        .await;
    }
    until_told(&client, &mtq, "Deployed", (names::FIELDS_NOT_IN_FORCE, "False", "AllInForce")).await;

    // Nothing waits for its deletion, and the options hold again.
    let answer = call(&client, Method::DELETE, &mtq, JSON, &json!({})).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(get(&client, &mtq).await.unwrap().code, 404, "it has no finalizer");
    for name in [names::CONTROLLER, names::WEBHOOK] {
        let is_shipped = |pod: &Value| pod["nodeSelector"].is_null() && pod["tolerations"].is_null();
        until_pods(&bed, name, SOON, "what is shipped", is_shipped).await;
    }

    // As HyperConverged takes the kind away and brings it back: nothing depends on it.
    kubectl(&bed, &["delete", "crd", "mtqs.mtq.kubevirt.io"]).await;
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    patch(&client, &aaq, &json!({ "spec": { "infra": infra } })).await;
    for name in [names::CONTROLLER, names::WEBHOOK] {
        let is_placed = |pod: &Value| pod["nodeSelector"] == infra["nodeSelector"];
        until_pods(&bed, name, SOON, "what the AAQ asks, without the kind MTQ", is_placed).await;
    }
    until_rolled(&bed).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    patch_as_operator_is_refused(&bed, &aaq).await;
}

/// The spec of an AAQ belongs to its user, whatever the rights of the operator.
async fn patch_as_operator_is_refused(bed: &Bed, aaq: &str) {
    let name = format!("system:serviceaccount:{}:{}", names::INSTALL_NAMESPACE, names::OPERATOR);
    let operator = bed.client_as_user(&name, &["system:masters"]).unwrap().client().unwrap();
    let change = json!({ "spec": { "namespaceSelector": { "matchLabels": { "a": "b" } } } });
    let answer = call(&operator, Method::PATCH, aaq, MERGE, &change).await.unwrap();
    assert_eq!(answer.code, 403, "{answer:?}");
    assert!(answer.message().contains(names::ACCOUNTS_POLICY), "{answer:?}");
}

/// The profile holds within this time.
const LIVE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn the_tls_profile_of_the_aaq_holds_for_new_handshakes_without_a_restart() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let secret = secrets.get(names::SERVING_SECRET).await.unwrap();
    let bundle = secret.data.unwrap().remove(names::CA_BUNDLE).unwrap().0;
    let address = running.installation.webhook_address();
    let operator = running.installation.operator_admin().to_owned();
    let lets_in = |version: &'static rustls::SupportedProtocolVersion| {
        let wire = Wire::speaking(&[version], &address, &bundle).unwrap();
        async move { wire.certificate("127.0.0.1").await.is_ok() }
    };
    let until = async |profile: Value, tls12: bool| {
        patch(&client, &aaq, &json!({ "spec": { "tlsSecurityProfile": profile } })).await;
        let is_so = || async { (lets_in(&rustls::version::TLS12).await == tls12).then_some(()) };
        wait::eventually(LIVE, is_so, &format!("handshakes by {profile}")).await.unwrap();
        assert!(lets_in(&rustls::version::TLS13).await, "{profile}");
        for admin in [&running.controller.admin, &running.webhook.admin, &operator] {
            let speaks = |version| async move { scrape::speaks(admin, version).await.unwrap() };
            let is_so = || async { (speaks(&rustls::version::TLS12).await == tls12).then_some(()) };
            wait::eventually(LIVE, is_so, &format!("metrics by {profile}")).await.unwrap();
            assert!(speaks(&rustls::version::TLS13).await, "{profile}");
        }
    };
    until(json!(null), true).await;
    until(json!({ "type": "Modern", "modern": {} }), false).await;
    until_told(&client, &aaq, "Deployed", (names::FIELDS_NOT_IN_FORCE, "False", "AllInForce")).await;
    let none = json!({ "ciphers": ["DHE-RSA-AES128-GCM-SHA256"], "minTLSVersion": "VersionTLS12" });
    patch(&client, &aaq, &json!({ "spec": { "tlsSecurityProfile": { "type": "Custom", "custom": none } } }))
        .await;
    until_told(&client, &aaq, "Deployed", (names::FIELDS_NOT_IN_FORCE, "True", "NotInForce")).await;
    assert!(!lets_in(&rustls::version::TLS12).await, "the profile before stays");
    until(json!(null), true).await;
    assert!(running.webhook.program.is_running() && running.controller.program.is_running());
}

/// Waits until all pods have the form that is asked for.
pub async fn until_rolled(bed: &Bed) {
    for name in [names::CONTROLLER, names::WEBHOOK] {
        let deployment = format!("deployment/{name}");
        let namespace = format!("--namespace={}", names::INSTALL_NAMESPACE);
        kubectl(bed, &["rollout", "status", &deployment, &namespace, "--timeout=120s"]).await;
    }
}

/// What the operator has changed; its lease and its questions about who may see metrics are no changes.
pub async fn writes_since(bed: &Bed, from: Timestamp) -> Vec<String> {
    let account = format!("{}:{}", names::INSTALL_NAMESPACE, names::OPERATOR);
    let events = bed.audit_events_with(&account).await.unwrap();
    let by_operator = events.into_iter().filter(|event| event.is_by(names::OPERATOR) && event.is_write());
    let since = by_operator.filter(|event| event.received >= from && !event.resource.ends_with("reviews"));
    let changes = since.filter(|event| event.resource != "leases");
    changes.map(|event| format!("{} {} {}", event.verb, event.resource, event.name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_true_of_deployments_that_fail_and_of_an_mtq() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    created(&client, MTQS, "MTQ", "mtq").await;
    for object in ["aaq/aaq", "mtq/mtq"] {
        until_condition(&bed, object, "Available").await;
    }
    let (aaq, mtq) = (format!("{AAQS}/{}", names::AAQ_NAME), format!("{MTQS}/mtq"));
    let simulated = format!("--selector={SIMULATED}=true");
    kubectl(&bed, &["cordon", &simulated]).await;
    let home = format!("--namespace={}", names::INSTALL_NAMESPACE);
    let of_webhook = format!("--selector=app.kubernetes.io/component={}", names::WEBHOOK);
    kubectl(&bed, &["delete", "pods", &home, &of_webhook, "--wait=false"]).await;
    for path in [&aaq, &mtq] {
        until_told(&client, path, "Deploying", ("Available", "False", "DeploymentsNotReady")).await;
    }
    kubectl(&bed, &["uncordon", &simulated]).await;
    for path in [&aaq, &mtq] {
        until_told(&client, path, "Deployed", ("Available", "True", "DeployCompleted")).await;
    }
    patch(&client, &mtq, &json!({ "spec": { "imagePullPolicy": "Always" } })).await;
    until_told(&client, &mtq, "Deployed", ("FieldsNotInForce", "False", "AllInForce")).await;
    // From now on it is the user's, and the fields of the MTQ hold no more.
    patch(&client, &aaq, &json!({ "spec": { "priorityClass": "missing" } })).await;
    until_told(&client, &aaq, "Deployed", ("FieldsNotInForce", "True", "NotInForce")).await;
    until_told(&client, &mtq, "Deployed", ("FieldsNotInForce", "True", "NotInForce")).await;
    created(&client, MTQS, "MTQ", "second").await;
    until_told(&client, &format!("{MTQS}/second"), "Error", (names::DEGRADED, "True", "ConfigError")).await;
}
