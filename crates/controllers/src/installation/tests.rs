//! What the loop decides from what it sees.

mod asked;
mod deployments;
mod existence;
mod statuses;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::names;

use super::observe::{OPERANDS, Operand, World, operand};
use super::wire::{AaqWire, DeploymentWire, MtqWire, Order, Orders as _};

/// This operator.
const VERSION: &str = "1.2.3";

fn read(name: &str, annotations: &Value, owned: &Value, pod: &Value, ready: i64) -> Operand {
    let mut pod = pod.clone();
    let policy = pod.as_object_mut().unwrap().remove("pull").unwrap_or_else(|| json!("IfNotPresent"));
    pod["containers"] =
        json!([{ "name": "other", "imagePullPolicy": "Never" }, { "name": name, "imagePullPolicy": policy }]);
    let object = json!({
        "metadata": {
            "name": name, "resourceVersion": "7", "generation": 3, "annotations": annotations,
            "managedFields": [
                { "manager": "helm", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": pod_fields(&json!({
                    "f:nodeSelector": {}, "f:tolerations": {}, "f:priorityClassName": {},
                })) },
                {
                    "manager": "sluice-operator", "operation": "Apply", "fieldsType": "FieldsV1",
                    "fieldsV1": pod_fields(owned),
                },
            ],
        },
        "spec": { "replicas": 2, "template": { "spec": pod } },
        "status": { "observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready },
    });
    operand(&serde_json::from_value::<DeploymentWire>(object).unwrap())
}

fn pod_fields(owned: &Value) -> Value {
    json!({ "f:spec": { "f:template": { "f:spec": owned } } })
}

/// As it is shipped.
fn shipped(name: &str) -> Operand {
    read(name, &json!({}), &json!({}), &json!({ "priorityClassName": "system-cluster-critical" }), 2)
}

/// There is no `AAQ` and no `MTQ`, and all Deployments are ready.
fn world() -> World {
    let deployments = OPERANDS.into_iter().chain([names::OPERATOR]);
    World {
        aaqs: Some(BTreeMap::new()),
        mtqs: Some(BTreeMap::new()),
        priority_classes: Some(["high", "system-cluster-critical"].map(str::to_owned).into()),
        deployments: deployments.map(|name| (name, Some(shipped(name)))).collect(),
        ..World::default()
    }
}

fn metadata(name: &str, second: u32) -> Value {
    json!({
        "name": name, "uid": format!("uid-{name}"), "resourceVersion": format!("rv-{name}"),
        "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
    })
}

fn aaq(name: &str, second: u32, spec: &Value, status: &Value) -> Order {
    let object = json!({ "metadata": metadata(name, second), "spec": spec, "status": status });
    serde_json::from_value::<AaqWire>(object).unwrap().order()
}

fn mtq(name: &str, spec: &Value) -> Order {
    let object = json!({ "metadata": metadata(name, 0), "spec": spec });
    serde_json::from_value::<MtqWire>(object).unwrap().order()
}

/// With this one `AAQ`.
fn asking(spec: &Value) -> World {
    let mut world = world();
    world.aaqs = Some([("aaq".to_owned(), aaq("aaq", 0, spec, &Value::Null))].into());
    world
}
