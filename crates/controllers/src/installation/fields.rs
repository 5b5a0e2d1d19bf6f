//! The fields of a Deployment that an `AAQ` may set. Each is atomic to server-side apply: one manager has all of it
//! (`k8s.io/api/core/v1/types.go`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value, json};
use sluice_api::names;

use super::wire::DeploymentWire;

/// A field of the pod's specification, by its path; [`PULL_POLICY`] lies in the container.
pub(super) type Field = &'static [&'static str];

/// `imagePullPolicy` of the container that has the Deployment's name.
pub(super) const PULL_POLICY: Field = &["imagePullPolicy"];
/// The class of the pods.
pub(super) const PRIORITY_CLASS: Field = &["priorityClassName"];

/// Labels that a node needs.
const NODE_SELECTOR: Field = &["nodeSelector"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// Where pods run. The paths are those of `spec.infra` too.
pub(super) const PLACEMENT: [Field; 8] = [
    NODE_SELECTOR,
    &["affinity", "nodeAffinity", REQUIRED],
    &["affinity", "nodeAffinity", PREFERRED],
    &["affinity", "podAffinity", REQUIRED],
    &["affinity", "podAffinity", PREFERRED],
    &["affinity", "podAntiAffinity", REQUIRED],
    &["affinity", "podAntiAffinity", PREFERRED],
    &["tolerations"],
];

/// What `spec.infra` says of [`PLACEMENT`], all of which it replaces; nothing if it says nothing.
pub(super) fn placement(infra: &Value) -> BTreeMap<Field, Value> {
    let asked = PLACEMENT.map(|field| (field, normal(field, find(infra, "", field))));
    let says_something = asked.iter().any(|(_, value)| !value.is_null());
    asked.into_iter().filter(|_| says_something).collect()
}

/// All of them.
pub(super) fn all() -> impl Iterator<Item = Field> {
    PLACEMENT.into_iter().chain([PRIORITY_CLASS, PULL_POLICY])
}

/// What a Deployment says of them, and which of them the operator owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields(BTreeMap<Field, Live>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Live {
    /// Null if it is not set.
    value: Value,
    is_owned: bool,
}

impl Fields {
    /// Of a Deployment.
    pub(super) fn of(object: &DeploymentWire) -> Self {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let managers = object.metadata.managed_fields.as_deref().unwrap_or_default();
        let owned = managers.iter().find(|manager| is_ours(manager)).and_then(owned_of_pod);
        let live = |field: Field| {
            let value = object.spec.pointer("/template/spec").and_then(|pod| find(pod, name, field));
            let is_owned = owned.is_some_and(|owned| owns(owned, name, field));
            (field, Live { value: normal(field, value), is_owned })
        };
        Self(all().map(live).collect())
    }

    /// Its value; null if it is not set.
    pub(super) fn value(&self, field: Field) -> Value {
        self.0.get(field).map(|live| live.value.clone()).unwrap_or_default()
    }

    /// Whether the operator has applied it.
    pub(super) fn is_owned(&self, field: Field) -> bool {
        self.0.get(field).is_some_and(|live| live.is_owned)
    }
}

fn is_ours(manager: &ManagedFieldsEntry) -> bool {
    let is = |text: &Option<String>, wanted: &str| text.as_deref() == Some(wanted);
    is(&manager.manager, names::OPERATOR) && is(&manager.operation, "Apply") && manager.subresource.is_none()
}

/// What is owned of the pod.
fn owned_of_pod(manager: &ManagedFieldsEntry) -> Option<&Value> {
    manager.fields_v1.as_ref()?.0.pointer("/f:spec/f:template/f:spec")
}

fn owns(owned: &Value, container: &str, field: Field) -> bool {
    let of = if field == PULL_POLICY {
        owned.get("f:containers").and_then(|all| all.get(format!("k:{{\"name\":\"{container}\"}}")))
    } else {
        Some(owned)
    };
    field.iter().try_fold(of.unwrap_or(&Value::Null), |at, name| at.get(format!("f:{name}"))).is_some()
}

fn find<'v>(pod: &'v Value, container: &str, field: Field) -> Option<&'v Value> {
    let of = if field == PULL_POLICY {
        let containers = pod.get("containers")?.as_array()?;
        containers.iter().find(|each| each.get("name").and_then(Value::as_str) == Some(container))?
    } else {
        pod
    };
    field.iter().try_fold(of, |at, name| at.get(name))
}

/// The value of a field as the API server keeps it: without what says nothing. Null if that is all of it.
fn normal(field: Field, value: Option<&Value>) -> Value {
    let kept = without_nothing(value.unwrap_or(&Value::Null), field == NODE_SELECTOR);
    if says_nothing(&kept, true) { Value::Null } else { kept }
}

fn without_nothing(value: &Value, is_labels: bool) -> Value {
    match value {
        Value::Object(fields) if !is_labels => {
            let kept = fields.iter().map(|(key, value)| {
                let is_labels = key == "matchLabels";
                (key.clone(), without_nothing(value, is_labels), is_labels)
            });
            let kept = kept.filter(|(_, value, is_labels)| !says_nothing(value, *is_labels));
            Value::Object(kept.map(|(key, value, _)| (key, value)).collect())
        }
        Value::Array(items) => items.iter().map(|item| without_nothing(item, false)).collect(),
        // The value of a label may be empty.
        other => other.clone(),
    }
}

/// An empty object says something, unless it is a map: `labelSelector: {}` selects everything.
fn says_nothing(value: &Value, is_map: bool) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => is_map && fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// What the operator applies to a Deployment: these fields, where null takes away what others have set, and nothing else.
pub(super) fn applied(name: &str, stated: &BTreeMap<Field, Value>, version: &str) -> Value {
    let mut pod = Map::new();
    for (field, value) in stated {
        if *field == PULL_POLICY {
            let container = json!({ "name": name, "imagePullPolicy": value });
            pod.insert("containers".to_owned(), json!([container]));
        } else {
            insert(&mut pod, field, value.clone());
        }
    }
    let kind = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name } });
    let mut object = kind.as_object().cloned().unwrap_or_default();
    if !pod.is_empty() {
        insert(&mut object, &["metadata", "annotations", names::WRITER_VERSION_ANNOTATION], json!(version));
        insert(&mut object, &["spec", "template", "spec"], Value::Object(pod));
    }
    Value::Object(object)
}

fn insert(object: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => {
            object.insert((*last).to_owned(), value);
        }
        [first, rest @ ..] => {
            let inner = object.entry((*first).to_owned()).or_insert_with(|| Value::Object(Map::new()));
            if let Some(inner) = inner.as_object_mut() {
                insert(inner, rest, value);
            }
        }
    }
}
