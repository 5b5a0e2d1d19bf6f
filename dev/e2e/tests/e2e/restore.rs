//! Our admission objects come back when another client deletes or edits them, and then do what they did.

use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, JSON_PATCH, MERGE, call, get};
use sluice_e2e::{Installation, Running, Setup};
use sluice_manifests::{InstallOptions, admission_policies};
use sluice_testbed::{Bed, Component, wait};

use crate::context::{SOON, idle_bed};

const ROOT: &str = "/apis/admissionregistration.k8s.io/v1";

fn policy(name: &str) -> String {
    format!("{ROOT}/validatingadmissionpolicies/{name}")
}

fn binding(name: &str) -> String {
    format!("{ROOT}/validatingadmissionpolicybindings/{name}")
}

/// All policies and their bindings, as they are shipped.
fn policies() -> Vec<String> {
    let path = |object: &Value| {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let plural =
            if kind.ends_with('y') { format!("{}ies", kind.trim_end_matches('y')) } else { kind + "s" };
        format!("{ROOT}/{plural}/{}", object["metadata"]["name"].as_str().unwrap())
    };
    let options = InstallOptions { gating: Setup::default().gating(), ..InstallOptions::default() };
    let policies = admission_policies(&options);
    policies.iter().flat_map(|each| [path(&each.policy), path(&each.binding)]).collect()
}

fn mutating() -> String {
    format!("{ROOT}/mutatingwebhookconfigurations/{}", names::MUTATING_CONFIG)
}

fn validating() -> String {
    format!("{ROOT}/validatingwebhookconfigurations/{}", names::VALIDATING_CONFIG)
}

/// What an object says, without what each object has of its own.
async fn content(client: &Client, path: &str) -> Option<Value> {
    let answer = get(client, path).await.ok().filter(|answer| answer.code == 200)?;
    let body = &answer.body;
    Some(json!({"spec": body["spec"], "webhooks": body["webhooks"], "labels": body["metadata"]["labels"]}))
}

async fn until_as(client: &Client, path: &str, before: &Value) {
    let back = || async { content(client, path).await.filter(|now| now == before) };
    wait::eventually(SOON, back, &format!("{path} to be as it was")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_or_edited_is_put_back() {
    let bed = idle_bed().await;
    let Running { installation, controller, webhook, .. } =
        Running::on(&bed, Setup::default()).await.unwrap();
    let client = bed.admin().unwrap();

    deleted_objects_are_created_again(&client, &installation).await;
    removed_entries_are_added_again(&client).await;
    edits_are_undone(&client, &installation).await;
    installation.until_gating().await.unwrap();
    assert!(controller.program.is_running() && webhook.program.is_running(), "without a restart");
    an_installation_that_is_removed_stays_removed(&bed, &client).await;
}

async fn deleted_objects_are_created_again(client: &Client, installation: &Installation<'_>) {
    for path in policies().into_iter().chain([validating(), mutating()]) {
        let before = content(client, &path).await.unwrap();
        let answer = call(client, Method::DELETE, &path, JSON, &json!({})).await.unwrap();
        assert_eq!(answer.code, 200, "{answer:?}");
        until_as(client, &path, &before).await;
        installation.until_guarded().await.unwrap();
    }
    installation.until_gating().await.unwrap();
}

async fn removed_entries_are_added_again(client: &Client) {
    let entries = async || content(client, &validating()).await.unwrap()["webhooks"].clone();
    let before = entries().await;
    let count = before.as_array().unwrap().len();
    // The last, so that the order stays.
    let last = json!([{"op": "remove", "path": format!("/webhooks/{}", count - 1)}]);
    let answer = call(client, Method::PATCH, &validating(), JSON_PATCH, &last).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let back = || async { (entries().await == before).then_some(()) };
    wait::eventually(SOON, back, "the removed webhook").await.unwrap();
    // All of them.
    let none = json!([{"op": "replace", "path": "/webhooks", "value": []}]);
    let answer = call(client, Method::PATCH, &validating(), JSON_PATCH, &none).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    wait::eventually(SOON, back, "all webhooks").await.unwrap();
}

async fn edits_are_undone(client: &Client, installation: &Installation<'_>) {
    let before = content(client, &validating()).await.unwrap();
    let headroom = before["webhooks"].as_array().unwrap().len() - 1;
    let edits = [
        json!({"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}),
        json!({"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["DELETE"]}),
        json!({"op": "replace", "path": format!("/webhooks/{headroom}/objectSelector"), "value": {}}),
        json!({"op": "replace", "path": format!("/webhooks/{headroom}/clientConfig/url"), "value": "https://127.0.0.1:1/"}),
    ];
    for edit in edits {
        let answer = call(client, Method::PATCH, &validating(), JSON_PATCH, &json!([edit])).await.unwrap();
        assert_eq!(answer.code, 200, "{answer:?}");
        until_as(client, &validating(), &before).await;
    }
    for (path, edit) in [
        (
            policy(names::CHARGE_POLICY),
            json!({"spec": {"matchConditions": [{"name": "never", "expression": "false"}]}}),
        ),
        (
            policy(names::LOCK_POLICY),
            json!({"spec": {"matchConstraints": {"namespaceSelector": {"matchLabels": {"only": "here"}}}}}),
        ),
        (binding(names::CHARGE_POLICY), json!({"spec": {"validationActions": ["Audit"]}})),
        (binding(names::LOCK_POLICY), json!({"spec": {"paramRef": {"parameterNotFoundAction": "Deny"}}})),
        (policy(names::GATED_POLICY), json!({"spec": {"failurePolicy": "Ignore"}})),
        (
            policy(names::GATED_POLICY),
            json!({"spec": {"matchConstraints": {"namespaceSelector": {"matchLabels": {"only": "here"}}}}}),
        ),
        (
            binding(names::GATED_POLICY),
            json!({"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"only": "here"}}}}}),
        ),
        (policy(names::GUARD_POLICY), json!({"spec": {"validations": [{"expression": "true"}]}})),
    ] {
        let before = content(client, &path).await.unwrap();
        let answer = call(client, Method::PATCH, &path, MERGE, &edit).await.unwrap();
        assert_eq!(answer.code, 200, "{answer:?}");
        until_as(client, &path, &before).await;
    }
    installation.until_guarded().await.unwrap();
}

/// An administrator who deletes the namespace and then the rest must not find a webhook later that no process answers
/// for.
async fn an_installation_that_is_removed_stays_removed(bed: &Bed, client: &Client) {
    // Else the namespace would be empty at once, and the controller without its lease.
    bed.pause(Component::ControllerManager);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(names::INSTALL_NAMESPACE, &DeleteParams::default()).await.unwrap();
    let removed = [policy(names::LOCK_POLICY), binding(names::CHARGE_POLICY), mutating()];
    for path in &removed {
        let answer = call(client, Method::DELETE, path, JSON, &json!({})).await.unwrap();
        assert_eq!(answer.code, 200, "{answer:?}");
    }
    // The controller is still there: what is left follows the authority.
    let before = content(client, &validating()).await.unwrap();
    let edit = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let answer = call(client, Method::PATCH, &validating(), JSON_PATCH, &edit).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    until_as(client, &validating(), &before).await;
    for path in &removed {
        assert_eq!(get(client, path).await.unwrap().code, 404, "{path}");
    }
    bed.resume(Component::ControllerManager);
}
