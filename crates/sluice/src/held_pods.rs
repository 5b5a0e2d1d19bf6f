//! Pods that wait behind the gate, and their release by an administrator.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_index::PodWire;
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, classify};

use crate::requests::{DEADLINE, RequestError, failed, patiently};

/// Pods in one page of a list.
const PAGE: u32 = 50;

/// A pod that waits behind our gate. Its order is that of [`WaitKey`](sluice_engine::release_queue::WaitKey).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    priority: Reverse<i32>,
    created: Option<Timestamp>,
    uid: String,
    pub namespace: String,
    name: String,
    /// The place of the gate among those of the pod.
    at: usize,
}

impl Held {
    fn of(pod: &PodWire) -> Option<Self> {
        let at = pod.spec.scheduling_gates.iter().position(|gate| gate.name == names::GATE)?;
        let metadata = &pod.metadata;
        Some(Self {
            priority: Reverse(pod.spec.priority.unwrap_or_default()),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            at,
        })
    }

    /// Holds for this pod and this gate, or not at all.
    fn patch(&self) -> Value {
        let gate = format!("/spec/schedulingGates/{}", self.at);
        json!([
            { "op": "test", "path": "/metadata/uid", "value": self.uid },
            { "op": "test", "path": gate, "value": { "name": names::GATE } },
            { "op": "remove", "path": gate },
        ])
    }
}

/// All pods behind our gate, in a namespace or in all, in the order in which they wait.
pub async fn held(client: &Client, namespace: Option<&str>) -> Result<Vec<Held>, RequestError> {
    let pods: Api<PodWire> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut all = Vec::new();
    let mut next = None::<String>;
    loop {
        // Pods with gates have no node yet.
        let mut page = ListParams::default().fields("status.phase=Pending").limit(PAGE);
        page.continue_token = next.take();
        let list = match patiently(|| pods.list(&page)).await {
            Ok(list) => list,
            // The list took longer than API servers keep its version.
            Err(kube::Error::Api(status)) if status.code == 410 && page.continue_token.is_some() => {
                all.clear();
                continue;
            }
            Err(error) => return Err(failed("list", "pods".to_owned(), "pods".to_owned())(error)),
        };
        all.extend(list.items.iter().filter_map(Held::of));
        next = list.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            all.sort();
            return Ok(all);
        }
    }
}

/// Takes the gate off a pod.
///
/// # Errors
/// Why it was not taken off; `None` if the next list shows how the pod is.
pub async fn release(client: &Client, pod: Held) -> Result<(), Option<String>> {
    let patch = match serde_json::from_value(pod.patch()) {
        Ok(patch) => Patch::Json::<()>(patch),
        Err(error) => return Err(Some(error.to_string())),
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let params =
        PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let sent = with_deadline(DEADLINE, pods.patch_metadata(&pod.name, &params, &patch)).await;
    match sent {
        Ok(_) => Ok(()),
        Err(error) => match classify(&error) {
            Failure::NotFound | Failure::Conflict => Err(None),
            _ => Err(Some(format!("pod {}/{}: {error}", pod.namespace, pod.name))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_of(priority: i32, name: &str, created: &str, gates: &[&str]) -> PodWire {
        let gates: Vec<_> = gates.iter().map(|name| json!({ "name": name })).collect();
        let metadata = json!({
            "namespace": "team", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": created,
        });
        let spec = json!({ "schedulingGates": gates, "priority": priority });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn pod(name: &str, created: &str, gates: &[&str]) -> PodWire {
        pod_of(0, name, created, gates)
    }

    #[test]
    fn pods_go_by_priority_and_age_and_only_those_behind_our_gate() {
        let pods = [
            pod("c", "2026-01-01T00:00:02Z", &[names::GATE]),
            pod("free", "2026-01-01T00:00:00Z", &[]),
            pod("other", "2026-01-01T00:00:00Z", &["example.com/gate"]),
            pod("b", "2026-01-01T00:00:01Z", &["example.com/gate", names::GATE]),
            pod("a", "2026-01-01T00:00:01Z", &[names::GATE]),
            pod_of(7, "urgent", "2026-01-01T00:00:03Z", &[names::GATE]),
        ];
        let mut held: Vec<_> = pods.iter().filter_map(Held::of).collect();
        held.sort();
        assert_eq!(held.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["urgent", "a", "b", "c"]);
    }

    #[test]
    fn only_our_gate_of_the_same_pod_goes() {
        let held = Held::of(&pod("a", "2026-01-01T00:00:01Z", &["example.com/gate", names::GATE])).unwrap();
        let expected = json!([
            { "op": "test", "path": "/metadata/uid", "value": "uid-a" },
            { "op": "test", "path": "/spec/schedulingGates/1", "value": { "name": names::GATE } },
            { "op": "remove", "path": "/spec/schedulingGates/1" },
        ]);
        assert_eq!(held.patch(), expected);
    }
}
