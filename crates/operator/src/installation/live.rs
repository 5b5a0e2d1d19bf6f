//! An operand as the API server has it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::{Value, json};
use sluice_api::names;

use super::wire::OperandWire;
use crate::version;

/// What the plan reads of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Live {
    pub(super) resource_version: String,
    pub(super) uid: String,
    /// `metadata` as far as it may be applied, and `spec`.
    pub(super) content: Value,
    /// The fields that the operator has applied, as `managedFields` name them; null: none.
    pub(super) owned: Value,
    /// Others that have set fields, by name, with these fields. The latest is first.
    pub(super) others: Vec<(String, Value)>,
    /// Which version of the operator has written it last.
    pub(super) writer: Option<String>,
    pub(super) rollout: Rollout,
    /// The ReplicaSet of the newest form of a Deployment.
    pub(super) newest: Option<String>,
    /// Why pods of a Deployment are not made: a sentence without what changes at each try.
    pub(super) not_made: Option<String>,
}

/// Pods of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rollout {
    /// So many are asked for.
    pub(super) wanted: i64,
    /// So many there are, in the old form too.
    pub(super) total: i64,
    /// So many have the form that is asked for.
    pub(super) updated: i64,
    /// So many do their work.
    pub(super) ready: i64,
    /// The other numbers are about what is asked for now.
    pub(super) is_observed: bool,
}

impl Live {
    pub(super) fn of<K>(object: OperandWire<K>) -> Self {
        let OperandWire { mut metadata, spec, status, .. } = object;
        let rollout = rollout(&metadata, &spec, &status);
        let managers = metadata.managed_fields.take().unwrap_or_default();
        let (ours, mut others): (Vec<_>, Vec<_>) = managers.into_iter().partition(is_ours);
        others.retain(|manager| manager.subresource.as_deref() != Some("status"));
        others.sort_by(|one, other| other.time.cmp(&one.time));
        Self {
            writer: version::writer(&metadata),
            resource_version: metadata.resource_version.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            content: json!({
                "metadata": {
                    "labels": metadata.labels,
                    "annotations": metadata.annotations,
                    "ownerReferences": metadata.owner_references,
                },
                "spec": spec,
            }),
            owned: ours.into_iter().next().map(fields).unwrap_or_default(),
            others: others
                .into_iter()
                .map(|manager| (manager.manager.clone().unwrap_or_default(), fields(manager)))
                .collect(),
            rollout,
            newest: newest(&status),
            not_made: not_made(&status),
        }
    }
}

fn is_ours(manager: &ManagedFieldsEntry) -> bool {
    let is = |text: &Option<String>, wanted: &str| text.as_deref() == Some(wanted);
    is(&manager.manager, names::OPERATOR) && is(&manager.operation, "Apply") && manager.subresource.is_none()
}

fn fields(manager: ManagedFieldsEntry) -> Value {
    manager.fields_v1.map(|fields| fields.0).unwrap_or_default()
}

/// By the words of the Deployment's controller: `ReplicaSet "a-1" is progressing.`, and others that name it so
/// (`k8s.io/kubernetes/pkg/controller/deployment/progress.go`). Which pods are the newest says nothing: one of the form
/// before may have been made again since.
fn newest(status: &Value) -> Option<String> {
    let message = condition(status, "Progressing")?.get("message")?.as_str()?;
    message.split('"').nth(1).map(str::to_owned)
}

/// As the API server has refused a pod, without its name.
fn not_made(status: &Value) -> Option<String> {
    let fails = condition(status, "ReplicaFailure").filter(|it| text(it, "status") == "True")?;
    let message = text(fails, "message");
    let why = message.split_once("\" ").map_or(message, |(_, why)| why);
    Some(format!("a new pod {why}"))
}

fn condition<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    status.get("conditions")?.as_array()?.iter().find(|it| text(it, "type") == kind)
}

fn text<'v>(of: &'v Value, key: &str) -> &'v str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn rollout(metadata: &ObjectMeta, spec: &Value, status: &Value) -> Rollout {
    let number = |of: &Value, key: &str| of.get(key).and_then(Value::as_i64);
    let told = |key: &str| number(status, key).unwrap_or_default();
    Rollout {
        wanted: number(spec, "replicas").unwrap_or(1),
        total: told("replicas"),
        updated: told("updatedReplicas"),
        ready: told("readyReplicas"),
        is_observed: told("observedGeneration") >= metadata.generation.unwrap_or_default(),
    }
}
