//! What keeps new pods of a Deployment from running.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

/// Label of a pod, whose value is the end of the name of its ReplicaSet.
const HASH: &str = "pod-template-hash";

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
    deployment: String,
    /// Of its form.
    hash: String,
    /// Seconds since 1970.
    created: i64,
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
        let hash = metadata.labels?.remove(HASH)?;
        let owner = metadata.owner_references?.into_iter().find(|it| it.controller == Some(true))?;
        let deployment = owner.name.strip_suffix(&hash)?.strip_suffix('-')?.to_owned();
        let created = metadata.creation_timestamp.map_or(0, |time| time.0.as_second());
        (owner.kind == "ReplicaSet").then(|| ReplicaPod { deployment, hash, created, kept: kept(&status) })
    }
}

/// What keeps the pods of the newest form of this Deployment from running, each once.
pub(super) fn kept_of<'p>(pods: &'p BTreeMap<String, ReplicaPod>, deployment: &str) -> BTreeSet<&'p str> {
    let of_it = || pods.values().filter(|pod| pod.deployment == deployment);
    let newest = of_it().max_by_key(|pod| pod.created).map(|pod| &pod.hash);
    let new = of_it().filter(|pod| Some(&pod.hash) == newest);
    new.flat_map(|pod| &pod.kept).map(String::as_str).collect()
}

/// Without times and numbers, and the same while a container waits and while it runs once more, so that it is said once.
fn kept(status: &Value) -> Vec<String> {
    let list = |field: &str| status.get(field).and_then(Value::as_array).into_iter().flatten();
    let is_unscheduled = |condition: &&Value| {
        condition.get("type").and_then(Value::as_str) == Some("PodScheduled")
            && condition.get("reason").and_then(Value::as_str) == Some("Unschedulable")
    };
    let unscheduled = list("conditions").find(is_unscheduled).map(|_| {
        "a new pod finds no node: see the events of the pod, and what its containers request".to_owned()
    });
    unscheduled.into_iter().chain(list("containerStatuses").filter_map(of_container)).collect()
}

/// By reasons of kubelet (`k8s.io/kubernetes/pkg/kubelet/images/types.go`, `kuberuntime/kuberuntime_container.go`).
fn of_container(status: &Value) -> Option<String> {
    let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (container, image) = (text("/name"), text("/image"));
    Some(match text("/state/waiting/reason") {
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

    fn pod(owner: &Value, second: u8, status: &Value) -> Option<ReplicaPod> {
        let metadata = json!({
            "labels": { HASH: owner["name"].as_str().unwrap_or_default().rsplit('-').next() },
            "ownerReferences": [owner], "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        });
        serde_json::from_value::<PodWire>(json!({ "metadata": metadata, "status": status }))
            .unwrap()
            .of_deployment()
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
    fn of_the_newest_form_of_a_deployment_is_said_what_keeps_it_and_of_no_other_pod() {
        let fails = |name: &str| json!({ "containerStatuses": [{ "name": name, "restartCount": 1 }] });
        let pods = [
            ("old", pod(&owner("ReplicaSet", "sluice-controller-1"), 1, &fails("old"))),
            ("new", pod(&owner("ReplicaSet", "sluice-controller-2"), 3, &json!({}))),
            ("new-too", pod(&owner("ReplicaSet", "sluice-controller-2"), 2, &fails("new"))),
            ("other", pod(&owner("ReplicaSet", "sluice-controller-x-3"), 9, &fails("other"))),
            ("job", pod(&owner("Job", "sluice-controller-4"), 9, &fails("job"))),
        ];
        let pods = pods.into_iter().filter_map(|(name, pod)| Some((name.to_owned(), pod?))).collect();
        let expected = BTreeSet::from(["container new has ended: see its log"]);
        assert_eq!(kept_of(&pods, "sluice-controller"), expected);
        assert_eq!(kept_of(&pods, "sluice-webhook"), BTreeSet::new());
    }
}
