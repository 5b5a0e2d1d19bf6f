//! Migration windows: what the API server lets be written.

use http::Method;
use serde_json::{Value, json};
use sluice_e2e::call::{MERGE, call, post};

use super::headroom::{OWN, many, refused};
use crate::context::{kubectl, shared};

fn window(name: &str) -> Value {
    json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "MigrationWindow", "metadata": {"name": name},
        "spec": {
            "holder": "sluice-webhook-0", "nonce": "0190-a", "creator": "system:serviceaccount:kubevirt:kubevirt-controller",
            "until": "2100-01-01T00:00:00Z", "migration": {"name": "mig", "uid": "u", "vmi": "web"},
            "quotas": [{"name": "rq", "uid": "v", "raise": {"requests.memory": "1500Mi", "pods": 3}}],
        },
    })
}

#[tokio::test]
async fn windows_are_checked_and_never_change() {
    let bed = shared().await.bed;
    let client = bed.admin().unwrap();
    let namespace = bed.namespace("windows", &[]).await.unwrap();
    let path = format!("{OWN}/namespaces/{namespace}/migrationwindows");
    let dry = format!("{path}?dryRun=All");
    for name in ["window", "probe", "drain"] {
        let answer = post(&client, &dry, &window(name)).await.unwrap();
        assert_eq!((answer.code, &answer.body["spec"]), (201, &window(name)["spec"]), "{answer:?}");
    }
    refused(&post(&client, &dry, &window("other")).await.unwrap(), "the name has to be window");
    let quotas: Vec<Value> = (0..65).map(|n| json!({"name": format!("q{n}"), "uid": "u"})).collect();
    for (pointer, value, text) in [
        ("/spec/nonce", json!("a b"), "spec.nonce"),
        ("/spec/nonce", json!(""), "spec.nonce"),
        ("/spec/nonce", json!("x".repeat(65)), "spec.nonce"),
        ("/spec/creator", json!(""), "spec.creator"),
        ("/spec/until", json!("tomorrow"), "spec.until"),
        ("/spec/until", json!("2030-01-01T00:00:00.5Z"), "spec.until"),
        ("/spec/until", json!("2030-01-01T00:00:00+01:00"), "spec.until"),
        ("/spec/migration/name", json!(""), "spec.migration.name"),
        ("/spec/quotas", json!(quotas), "spec.quotas"),
        ("/spec/quotas/0/raise", json!({"pods": "many"}), "spec.quotas[0].raise"),
        ("/spec/quotas/0/raise", many(65), "spec.quotas[0].raise"),
    ] {
        let mut wrong = window("window");
        *wrong.pointer_mut(pointer).unwrap() = value;
        refused(&post(&client, &dry, &wrong).await.unwrap(), text);
    }
    for field in ["holder", "nonce", "creator", "until", "migration"] {
        let mut without = window("window");
        without["spec"].as_object_mut().unwrap().remove(field);
        refused(&post(&client, &dry, &without).await.unwrap(), &format!("spec.{field}: Required value"));
    }
    assert_eq!(post(&client, &path, &window("window")).await.unwrap().code, 201);
    let one = format!("{path}/window");
    for change in [
        json!({"until": "2099-01-01T00:00:00Z"}),
        json!({"quotas": null}),
        json!({"migration": {"vmi": "db"}}),
    ] {
        let answer = call(&client, Method::PATCH, &one, MERGE, &json!({"spec": change})).await.unwrap();
        refused(&answer, "a window never changes");
    }
    let table = kubectl(bed, &["get", "migrationwindow", "--namespace", &namespace.name]).await;
    let (head, row) = table.trim_end().split_once('\n').unwrap();
    let columns = ["NAME", "MIGRATION", "VM", "UNTIL", "HOLDER", "AGE"];
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), columns);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..5], ["window", "mig", "web", "2100-01-01T00:00:00Z", "sluice-webhook-0"], "{table}");
}
