//! What keeps new pods of a Deployment from running.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

/// A pod of the installation.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Pod)]
pub(super) struct PodWire {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Value,
}

/// What matters of a pod that a Deployment has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplicaPod {
    /// Its ReplicaSet, which the pods of one form have in common.
    replica_set: String,
    is_ready: bool,
    /// What keeps it from running: a sentence each.
    kept: Vec<String>,
}

impl PodWire {
    /// `None`: no Deployment has made it, or it goes.
    pub(super) fn of_deployment(self) -> Option<ReplicaPod> {
        let Self { metadata, status } = self;
        if metadata.deletion_timestamp.is_some() {
            return None;
        }
        let owner = metadata.owner_references?.into_iter().find(|it| it.controller == Some(true))?;
        let is_ready = condition(&status, "Ready").is_some_and(|it| text(it, "/status") == "True");
        let made = ReplicaPod { replica_set: owner.name, is_ready, kept: kept(&status) };
        (owner.kind == "ReplicaSet").then_some(made)
    }
}

/// What keeps the pods of this ReplicaSet from running, each once. Of pods that do their work only while `is_rolling`: one
/// whose container ends again and again does so for moments.
pub(super) fn kept_of<'p>(
    pods: &'p BTreeMap<String, ReplicaPod>,
    replica_set: &str,
    is_rolling: bool,
) -> BTreeSet<&'p str> {
    let of_it = pods.values().filter(|pod| pod.replica_set == replica_set && (is_rolling || !pod.is_ready));
    of_it.flat_map(|pod| &pod.kept).map(String::as_str).collect()
}

/// Without times and numbers, and the same while a container waits and while it runs once more, so that it is said once.
fn kept(status: &Value) -> Vec<String> {
    let unscheduled = condition(status, "PodScheduled").filter(|it| text(it, "/reason") == "Unschedulable");
    let unscheduled = unscheduled.map(|_| {
        "a new pod finds no node: see the events of the pod, and what its containers request".to_owned()
    });
    let containers = status.get("containerStatuses").and_then(Value::as_array).into_iter().flatten();
    unscheduled.into_iter().chain(containers.filter_map(of_container)).collect()
}

fn condition<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    status.get("conditions")?.as_array()?.iter().find(|it| text(it, "/type") == kind)
}

fn text<'v>(of: &'v Value, pointer: &str) -> &'v str {
    of.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// By reasons of kubelet (`k8s.io/kubernetes/pkg/kubelet/images/types.go`, `kuberuntime/kuberuntime_container.go`).
fn of_container(status: &Value) -> Option<String> {
    let (container, image) = (text(status, "/name"), text(status, "/image"));
    Some(match text(status, "/state/waiting/reason") {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull"
        | "ImageInspectError" => format!(
            "the image {image} of container {container} cannot be pulled: correct it, or see the events of the pod"
        ),
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            format!("container {container} cannot be started: see the events of the pod")
        }
        _ if status.get("restartCount").and_then(Value::as_i64).unwrap_or(0) > 0 => {
            format!("container {container} has ended: see its log")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(owner: &Value, status: &Value) -> Option<ReplicaPod> {
        let pod = json!({ "metadata": { "ownerReferences": [owner] }, "status": status });
        serde_json::from_value::<PodWire>(pod).unwrap().of_deployment()
    }

    fn owner(kind: &str, name: &str) -> Value {
        json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true })
    }

    #[test]
    fn what_keeps_a_container_from_running_is_said_by_cause_and_without_what_changes() {
        let waits = |reason: &str, restarts: i64| {
            json!({ "name": "label", "image": "i:1", "restartCount": restarts, "state": { "waiting": {
                "reason": reason, "message": "back-off 40s",
            } } })
        };
        let said = |container: Value| kept(&json!({ "containerStatuses": [container] })).join("; ");
        assert_eq!(said(waits("ContainerCreating", 0)), "");
        let pulled =
            "the image i:1 of container label cannot be pulled: correct it, or see the events of the pod";
        assert_eq!(said(waits("ErrImagePull", 0)), pulled);
        assert_eq!(said(waits("ImagePullBackOff", 0)), pulled);
        let started = "container label cannot be started: see the events of the pod";
        assert_eq!(said(waits("CreateContainerConfigError", 0)), started);
        let ended = "container label has ended: see its log";
        assert_eq!(said(waits("CrashLoopBackOff", 3)), ended);
        let runs = json!({ "name": "label", "image": "i:1", "restartCount": 3, "state": { "running": {} } });
        assert_eq!(said(runs), ended, "it is no other case each time that it is started");
        let unscheduled = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
        assert!(
            kept(&json!({ "conditions": [unscheduled] })).join("").starts_with("a new pod finds no node")
        );
    }

    #[test]
    fn of_a_replica_set_is_said_what_keeps_it_and_of_no_other_pod() {
        let fails = |name: &str, ready: &str| {
            json!({
                "containerStatuses": [{ "name": name, "restartCount": 1 }],
                "conditions": [{ "type": "Ready", "status": ready }],
            })
        };
        let pods = [
            ("old", pod(&owner("ReplicaSet", "sluice-controller-1"), &fails("old", "False"))),
            ("new", pod(&owner("ReplicaSet", "sluice-controller-2"), &json!({}))),
            ("new-too", pod(&owner("ReplicaSet", "sluice-controller-2"), &fails("new", "False"))),
            ("works", pod(&owner("ReplicaSet", "sluice-controller-2"), &fails("works", "True"))),
            ("job", pod(&owner("Job", "sluice-controller-2"), &fails("job", "False"))),
        ];
        let pods = pods.into_iter().filter_map(|(name, pod)| Some((name.to_owned(), pod?))).collect();
        let ended = |name: &str| format!("container {name} has ended: see its log");
        let said = |is_rolling: bool| kept_of(&pods, "sluice-controller-2", is_rolling);
        assert_eq!(Vec::from_iter(said(true)), [ended("new"), ended("works")]);
        assert_eq!(Vec::from_iter(said(false)), [ended("new")]);
    }
}
