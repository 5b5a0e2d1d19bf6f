//! Does what the plan says, and reports how it went. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{ListParams, ObjectList, Patch, PatchParams, VersionMatch};
use kube::core::{PartialObjectMeta, Request};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota, names};
use sluice_engine::Uid;
use sluice_index::{PodWire, VmiWire};
use sluice_runtime::client::with_deadline;
use sluice_runtime::lease::WriteToken;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::retry::words;
use tokio::sync::Semaphore;

use super::action::{Action, Answer, GateEvent, Outcome, Release};

/// How many requests may be under way at a time, by default: lists, and as many of everything else but releases.
pub const AT_A_TIME: usize = 16;

/// So many pods are read at a time, since large ones of a tenant are in memory whole.
const PODS_OF_A_PAGE: u32 = 50;

/// So many pages are read at a time.
const PAGES_AT_A_TIME: usize = 2;

/// Which part of a list is read.
pub(super) enum Page {
    /// The begin of one that is of this version or a later one; 0: of now.
    First { version: u64 },
    /// What comes after the page that had this token.
    Next { token: String },
}

/// Executes actions.
#[derive(Clone)]
pub struct Apply {
    client: kube::Client,
    pub(super) token: WriteToken,
    pub(super) writes: ApiWrites,
    /// Of the installation: the charges of cluster quotas are there.
    pub(super) namespace: Arc<str>,
    write_event: Arc<dyn Fn(GateEvent) -> BoxFuture<'static, bool> + Send + Sync>,
    /// Lists have turns of their own, so that no charge waits for them: an API server answers a list once its cache has come
    /// to the present, which may take a tenth of a second.
    lists: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// Pages of pods in their JSON: two are in memory at a time.
    pub(super) pages: Arc<Semaphore>,
    request_deadline: Duration,
}

impl Apply {
    /// Writes with `client` while `token` is held, for an installation in `namespace`; `write_event` writes an event and
    /// says whether it is written. `at_a_time`: how many lists, and as many other requests, may be under way.
    ///
    /// No request takes longer than `request_deadline`: a write of a process that lost its lease must be dead
    /// before another one leads, so it plus the renew deadline must not exceed the lease's duration.
    pub fn new(
        client: kube::Client,
        token: WriteToken,
        writes: ApiWrites,
        namespace: &str,
        write_event: impl Fn(GateEvent) -> BoxFuture<'static, bool> + Send + Sync + 'static,
        at_a_time: usize,
        request_deadline: Duration,
    ) -> Self {
        Self {
            client,
            token,
            writes,
            namespace: namespace.into(),
            write_event: Arc::new(write_event),
            lists: Arc::new(Semaphore::new(at_a_time)),
            others: Arc::new(Semaphore::new(at_a_time)),
            pages: Arc::new(Semaphore::new(PAGES_AT_A_TIME)),
            request_deadline,
        }
    }

    /// Executes one action; `None` if nothing comes of it.
    pub async fn execute(&self, action: Action) -> Option<Outcome> {
        // The state bounds how many events and releases are under way, and they keep no other request from its turn.
        if let Action::WriteEvent(event) = action {
            let is_written = self.token.is_held() && (self.write_event)(event.clone()).await;
            return Some(Outcome::EventWritten(event, is_written));
        }
        if let Action::Release(release) = action {
            let answer = self.release(&release).await;
            log(&answer, "releasing pod", &release.namespace, &release.name);
            return Some(Outcome::Released(release.pod, release.uid, answer));
        }
        let turns = match action {
            Action::ListQuotas(_) | Action::ReadMachine(_) => &self.lists,
            _ => &self.others,
        };
        let _turn = turns.acquire().await.ok()?;
        match action {
            Action::Record(record) => {
                let answer = self.record(&record).await;
                log(&answer, "recording usage", &record.name.namespace(), record.name.name());
                Some(Outcome::Recorded(record.quota, record.uid, answer))
            }
            Action::Read(pod) => {
                let path = Pod::url_path(&(), Some(&pod.namespace));
                let answer = self.reread(Request::new(&path).get(&pod.name, &Default::default())).await;
                log(&answer, "reading pod", &pod.namespace, &pod.name);
                Some(Outcome::Read(pod.pod, pod.uid, answer))
            }
            Action::ListQuotas(namespaces) => {
                let one = if let [(_, name)] = namespaces.as_slice() { Some(&**name) } else { None };
                let path = ApplicationAwareResourceQuota::url_path(&(), one);
                let answer = self.list(&path).await;
                log(&answer, "listing quotas", one.unwrap_or_default(), "");
                Some(Outcome::Listed(namespaces.into_iter().map(|(id, _)| id).collect(), answer))
            }
            Action::ReadMachine(machine) => {
                let path = VmiWire::url_path(&(), Some(&machine.namespace));
                let answer = self.read(Request::new(&path).get(&machine.name, &Default::default())).await;
                log(&answer, "reading virtual machine", &machine.namespace, &machine.name);
                Some(Outcome::MachineRead(machine, Box::new(answer)))
            }
            // These are done where the watches and the evaluators are; events and releases are done above.
            Action::CatchUp
            | Action::CatchUpClusterQuotas
            | Action::ListTargets
            | Action::Answer(..)
            | Action::ReadRound(_)
            | Action::Evaluate(_)
            | Action::WriteEvent(_)
            | Action::Release(_) => None,
        }
    }

    async fn release(&self, release: &Release) -> Answer<PodWire> {
        if !self.token.is_held() {
            return Answer::Busy(None);
        }
        let path = Pod::url_path(&(), Some(&release.namespace));
        let patch = match serde_json::from_value::<json_patch::Patch>(gate_removal(release)) {
            Ok(patch) => Patch::Json::<()>(patch),
            Err(error) => return Answer::Refused(error.to_string()),
        };
        let request = Request::new(&path).patch(&release.name, &PatchParams::default(), &patch);
        let write = self.send::<PodWire>(request);
        match self.writes.record("pods", "patch", write).await {
            Ok(pod) => Answer::Done(pod),
            Err(error) => match refusal(error) {
                // The pod may be another than was decided on, or without its gate already: an earlier request may have been
                // done although it had no answer. Reading the pod tells.
                Answer::Refused(why) => {
                    let now = self.reread(Request::new(&path).get(&release.name, &Default::default())).await;
                    match now {
                        Answer::Stale(Some(pod)) if is_version(&pod, release) => Answer::Refused(why),
                        other => other,
                    }
                }
                other => other,
            },
        }
    }

    async fn list<T: DeserializeOwned + Clone>(&self, path: &str) -> Answer<Vec<T>> {
        let list = self.send::<ObjectList<T>>(Request::new(path).list(&ListParams::default())).await;
        Answer::from(list).map(|list| list.items)
    }

    /// The resource version that there is now. A list that names no version is read from a quorum of the store
    /// (kubernetes.io/docs/reference/using-api/api-concepts, *Semantics for get and list*). None: there was no answer, or
    /// the server's versions are not numbers.
    pub(super) async fn newest_version(&self) -> Option<u64> {
        let path = Pod::url_path(&(), None);
        let request = Request::new(&path).list(&ListParams::default().limit(1));
        let list = self.send::<ObjectList<PodWire>>(request).await.ok()?;
        list.metadata.resource_version?.parse().ok()
    }

    /// Of each cluster quota its identity and the number of its specification. Read without what it shows, which is long
    /// where it is about many namespaces. None: there was no answer.
    pub(super) async fn cluster_quota_generations(&self) -> Option<Vec<(Uid, i64)>> {
        let _turn = self.lists.acquire().await.ok()?;
        let path = ApplicationAwareClusterResourceQuota::url_path(&(), None);
        let request = Request::new(&path).list_metadata(&ListParams::default());
        let list = self.send::<ObjectList<PartialObjectMeta>>(request).await.ok()?;
        let read = |item: PartialObjectMeta| {
            let meta = item.metadata;
            (Uid::parse(meta.uid.as_deref().unwrap_or_default()), meta.generation.unwrap_or_default())
        };
        Some(list.items.into_iter().map(read).collect())
    }

    /// A pod's JSON as it is now.
    pub(super) async fn pod_text(&self, namespace: &str, name: &str) -> kube::Result<String> {
        let path = Pod::url_path(&(), Some(namespace));
        let request = Request::new(&path).get(name, &Default::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        with_deadline(self.request_deadline, self.client.request_text(request)).await
    }

    /// A page of the pods of a namespace, or of all, in their JSON.
    pub(super) async fn pod_texts(
        &self,
        namespace: Option<&str>,
        page: &Page,
    ) -> kube::Result<ObjectList<Box<RawValue>>> {
        let parameters = ListParams::default().limit(PODS_OF_A_PAGE);
        let parameters = match page {
            Page::First { version: 0 } => parameters,
            // An API server that lists from its cache has it as soon as it has seen that version; for the present it would
            // ask etcd.
            Page::First { version } => {
                parameters.at(&version.to_string()).matching(VersionMatch::NotOlderThan)
            }
            Page::Next { token } => parameters.continue_token(token),
        };
        self.send(Request::new(Pod::url_path(&(), namespace)).list(&parameters)).await
    }

    /// What an object is now; `None` if it does not exist.
    async fn read<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Answer<Option<T>> {
        match Answer::from(self.send::<T>(request).await) {
            Answer::Stale(_) => Answer::Done(None),
            answer => answer.map(Some),
        }
    }

    /// What an object is now, after a write that was based on something else.
    pub(super) async fn reread<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Answer<T> {
        match Answer::from(self.send::<T>(request).await) {
            Answer::Done(object) => Answer::Stale(Some(object)),
            Answer::Stale(_) => Answer::Stale(None),
            Answer::Refused(why) | Answer::Unknown(why) => Answer::Unknown(why),
            Answer::Busy(_) => Answer::Unknown("the API server has too much to do".to_owned()),
        }
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<T> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        with_deadline(self.request_deadline, self.client.request::<T>(request)).await
    }
}

/// An answer that says nothing about what the object is now.
pub(super) fn refusal<T>(error: kube::Error) -> Answer<T> {
    let why = words(&error);
    match Answer::from(Err(error)) {
        Answer::Stale(_) => Answer::Refused(why),
        answer => answer,
    }
}

fn is_version(pod: &PodWire, release: &Release) -> bool {
    pod.metadata.resource_version == release.version.precondition()
        && pod.metadata.uid.as_deref().is_some_and(|uid| Uid::parse(uid) == release.uid)
}

/// Removes all gates, which is only ours, from exactly the version that was decided on.
fn gate_removal(release: &Release) -> Value {
    let mut operations =
        vec![json!({"op": "test", "path": "/metadata/uid", "value": release.uid.to_string()})];
    if let Some(version) = release.version.precondition() {
        operations.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    }
    operations.push(json!({
        "op": "test", "path": "/spec/schedulingGates", "value": [{"name": names::GATE}]
    }));
    operations.push(json!({"op": "remove", "path": "/spec/schedulingGates"}));
    Value::Array(operations)
}

fn log<T>(answer: &Answer<T>, what: &'static str, namespace: &str, name: &str) {
    match answer {
        Answer::Done(_) => tracing::debug!(what, namespace, name, "done"),
        Answer::Stale(_) => tracing::debug!(what, namespace, name, "object has changed meanwhile"),
        Answer::Busy(after) => tracing::debug!(what, namespace, name, ?after, "put off"),
        Answer::Refused(error) => tracing::warn!(what, namespace, name, error, "refused"),
        Answer::Unknown(error) => tracing::warn!(what, namespace, name, error, "outcome unknown"),
    }
}
