//! Takes the gate off all pods.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_index::PodWire;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, classify};

use super::progress::{Progress, Say};
use super::requests::{CONCURRENT, DEADLINE, RequestError, failed, patiently};

/// So often all pods are gone through. Nothing of Sluice gates by then, so what is held still is gated by its creator, or
/// its release is refused.
const PASSES: u32 = 10;
/// Pods in one page of a list.
const PAGE: u32 = 50;

/// A pod that waits behind our gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    created: Option<Timestamp>,
    namespace: String,
    name: String,
    uid: String,
    /// The place of the gate among those of the pod.
    at: usize,
}

impl Held {
    fn of(pod: &PodWire) -> Option<Self> {
        let at = pod.spec.scheduling_gates.iter().position(|gate| gate.name == names::GATE)?;
        let metadata = &pod.metadata;
        Some(Self {
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

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// So many pods were released by the last call.
    pub(super) pods: usize,
    /// So many are held still.
    pub(super) left: usize,
    /// Why the last one that was refused was.
    pub(super) why: Option<String>,
    /// So often all pods were gone through, by all calls.
    pub(super) passes: u32,
    /// The last time, pods were released.
    pub(super) is_fed: bool,
}

impl Released {
    /// Why pods are held still.
    pub(super) fn reasons(&self) -> String {
        let is_fed = self.is_fed && self.passes >= PASSES;
        let fed = is_fed.then(|| format!("somebody creates pods with the gate {} itself", names::GATE));
        let all: Vec<_> = self.why.iter().cloned().chain(fed).collect();
        if all.is_empty() { "they change all the time".to_owned() } else { all.join("; ") }
    }
}

/// All pods behind our gate, in the order of their creation.
pub(super) async fn held(client: &Client) -> Result<Vec<Held>, RequestError> {
    let pods: Api<PodWire> = Api::all(client.clone());
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

/// Releases all pods, those included that come meanwhile. Nothing of Sluice creates gates any more, so a list without any is
/// the end. Who creates pods with the gate itself does not keep this from its end: all calls together go through the pods
/// [so often](PASSES). What was done stands in `released` also after an error.
pub(super) async fn release(client: &Client, say: Say, released: &mut Released) -> Result<(), RequestError> {
    released.pods = 0;
    let mut progress = Progress::begin(say);
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5), process_seed());
    loop {
        let waiting = held(client).await?;
        released.left = waiting.len();
        if waiting.is_empty() || released.passes >= PASSES {
            return Ok(());
        }
        released.passes += 1;
        released.why = None;
        let (total, before) = (released.pods + waiting.len(), released.pods);
        let mut answers = stream::iter(waiting).map(|pod| one(client, pod)).buffer_unordered(CONCURRENT);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(()) => released.pods += 1,
                Err(why) => released.why = why.or_else(|| released.why.take()),
            }
            progress.say(|| format!("released {} of {total} pods", released.pods));
        }
        released.left = total - released.pods;
        released.is_fed = released.pods > before;
        if released.is_fed {
            backoff.reset();
        } else {
            tokio::time::sleep(backoff.failed()).await;
        }
    }
}

/// Why it was not released; `None` if the next list shows how the pod is.
async fn one(client: &Client, pod: Held) -> Result<(), Option<String>> {
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

    fn pod(name: &str, created: &str, gates: &[&str]) -> PodWire {
        let gates: Vec<_> = gates.iter().map(|name| json!({ "name": name })).collect();
        let metadata = json!({
            "namespace": "team", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": created,
        });
        serde_json::from_value(json!({ "metadata": metadata, "spec": { "schedulingGates": gates } })).unwrap()
    }

    #[test]
    fn pods_go_in_the_order_of_their_creation_and_only_those_behind_our_gate() {
        let pods = [
            pod("c", "2026-01-01T00:00:02Z", &[names::GATE]),
            pod("free", "2026-01-01T00:00:00Z", &[]),
            pod("other", "2026-01-01T00:00:00Z", &["example.com/gate"]),
            pod("b", "2026-01-01T00:00:01Z", &["example.com/gate", names::GATE]),
            pod("a", "2026-01-01T00:00:01Z", &[names::GATE]),
        ];
        let mut held: Vec<_> = pods.iter().filter_map(Held::of).collect();
        held.sort();
        assert_eq!(held.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["a", "b", "c"]);
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

    #[test]
    fn who_creates_gates_itself_is_told_beside_what_is_refused() {
        let refused = || Some("pod a/b: refused".to_owned());
        let of = |passes, is_fed, why| Released { pods: 1, left: 1, why, passes, is_fed }.reasons();
        let fed = format!("somebody creates pods with the gate {} itself", names::GATE);
        assert_eq!(of(PASSES, true, None), fed);
        assert_eq!(of(PASSES, true, refused()), format!("pod a/b: refused; {fed}"));
        assert_eq!(of(PASSES, false, refused()), "pod a/b: refused");
        assert_eq!(of(1, true, None), "they change all the time");
    }
}
