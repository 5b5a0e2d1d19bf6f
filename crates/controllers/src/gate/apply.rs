//! Does what the plan says, and reports how it went. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{ListParams, ObjectList, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::ApplicationAwareResourceQuota;
use sluice_engine::Quantity;
use sluice_index::wire::{PodWire, QuotaWire};
use sluice_kube_ext::client::with_deadline;
use sluice_kube_ext::lease::WriteToken;
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::retry::{Failure, classify};
use tokio::sync::Semaphore;

use super::action::{Action, Answer, Outcome, Record, Release, Tell};

/// How many requests may be under way at a time.
#[derive(Clone, Copy, Debug)]
pub struct Concurrency {
    /// Removals of gates.
    pub releases: usize,
    /// Everything else.
    pub others: usize,
}

impl Default for Concurrency {
    fn default() -> Self {
        // Enough to keep an API server busy over connections that carry one request at a time; more only
        // waits inside the server, where it delays others.
        Self { releases: 32, others: 16 }
    }
}

/// Executes actions.
#[derive(Clone)]
pub struct Apply {
    client: kube::Client,
    token: WriteToken,
    writes: ApiWrites,
    tell: Arc<dyn Fn(Tell) + Send + Sync>,
    releases: Arc<Semaphore>,
    others: Arc<Semaphore>,
    request_deadline: Duration,
}

impl Apply {
    /// Writes with `client` while `token` is held; what pods are to be told goes to `tell`.
    ///
    /// No request takes longer than `request_deadline`: a write of a process that lost its lease must be dead
    /// before another one leads, so it plus the renew deadline must not exceed the lease's duration.
    pub fn new(
        client: kube::Client,
        token: WriteToken,
        writes: ApiWrites,
        tell: impl Fn(Tell) + Send + Sync + 'static,
        concurrency: Concurrency,
        request_deadline: Duration,
    ) -> Self {
        Self {
            client,
            token,
            writes,
            tell: Arc::new(tell),
            releases: Arc::new(Semaphore::new(concurrency.releases)),
            others: Arc::new(Semaphore::new(concurrency.others)),
            request_deadline,
        }
    }

    /// Executes one action; `None` if nothing comes of it.
    pub async fn execute(&self, action: Action) -> Option<Outcome> {
        let turns = if matches!(action, Action::Release(_)) { &self.releases } else { &self.others };
        let _turn = turns.acquire().await.ok()?;
        match action {
            Action::Record(record) => {
                let answer = self.record(&record).await;
                log(&answer, "recording usage", &record.namespace, &record.name);
                Some(Outcome::Recorded(record.quota, record.uid, answer))
            }
            Action::Release(release) => {
                let answer = self.release(&release).await;
                log(&answer, "releasing pod", &release.namespace, &release.name);
                Some(Outcome::Released(release.pod, release.uid, answer))
            }
            Action::ListQuotas(id, namespace) => {
                let answer = self.list_quotas(&namespace).await;
                log(&answer, "listing quotas", &namespace, "");
                Some(Outcome::Listed(id, answer))
            }
            Action::Tell(tell) => {
                (self.tell)(tell);
                None
            }
        }
    }

    async fn record(&self, record: &Record) -> Answer<QuotaWire> {
        if !self.token.is_held() {
            return Answer::Busy(None);
        }
        let path = ApplicationAwareResourceQuota::url_path(&(), Some(&record.namespace));
        let body = serde_json::to_vec(&status_object(record)).unwrap_or_default();
        let request =
            Request::new(&path).replace_subresource("status", &record.name, &PostParams::default(), body);
        let write = self.send::<QuotaWire>(request);
        match self.writes.record("applicationawareresourcequotas", "update", write).await {
            Ok(quota) => Answer::Done(quota),
            Err(error) => match classify(&error) {
                Failure::Conflict | Failure::NotFound => {
                    self.reread(Request::new(&path).get(&record.name, &Default::default())).await
                }
                _ => refusal(&error),
            },
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
            Err(error) => match classify(&error) {
                Failure::Conflict | Failure::NotFound | Failure::Invalid => {
                    let now = self.reread(Request::new(&path).get(&release.name, &Default::default())).await;
                    match now {
                        // It is what was asked for and was refused all the same.
                        Answer::Stale(Some(pod)) if is_version(&pod, release) => {
                            Answer::Refused(error.to_string())
                        }
                        other => other,
                    }
                }
                _ => refusal(&error),
            },
        }
    }

    async fn list_quotas(&self, namespace: &str) -> Answer<Vec<QuotaWire>> {
        let path = ApplicationAwareResourceQuota::url_path(&(), Some(namespace));
        let list = match Request::new(&path).list(&ListParams::default()) {
            Ok(request) => {
                with_deadline(self.request_deadline, self.client.request::<ObjectList<QuotaWire>>(request))
                    .await
            }
            Err(error) => return Answer::Unknown(error.to_string()),
        };
        match list {
            Ok(list) => Answer::Done(list.items),
            Err(error) => refusal(&error),
        }
    }

    /// What an object is now, after a write that was based on something else.
    async fn reread<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Answer<T> {
        match self.send::<T>(request).await {
            Ok(object) => Answer::Stale(Some(object)),
            Err(error) => match classify(&error) {
                Failure::NotFound => Answer::Stale(None),
                _ => Answer::Unknown(error.to_string()),
            },
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<T> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        with_deadline(self.request_deadline, self.client.request::<T>(request)).await
    }
}

fn refusal<T>(error: &kube::Error) -> Answer<T> {
    match classify(error) {
        Failure::Throttled { retry_after } => Answer::Busy(retry_after),
        Failure::Server(_) | Failure::Unknown => Answer::Unknown(error.to_string()),
        _ => Answer::Refused(error.to_string()),
    }
}

fn is_version(pod: &PodWire, release: &Release) -> bool {
    pod.metadata.resource_version == release.version.precondition()
        && pod.metadata.uid.as_deref().is_some_and(|uid| sluice_engine::Uid::parse(uid) == release.uid)
}

/// Removes all gates, which is only ours, from exactly the version that was decided on.
fn gate_removal(release: &Release) -> Value {
    let mut operations =
        vec![json!({"op": "test", "path": "/metadata/uid", "value": release.uid.to_string()})];
    if let Some(version) = release.version.precondition() {
        operations.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    }
    operations.push(json!({
        "op": "test", "path": "/spec/schedulingGates", "value": [{"name": sluice_api::names::GATE}]
    }));
    operations.push(json!({"op": "remove", "path": "/spec/schedulingGates"}));
    Value::Array(operations)
}

/// The object as a status update takes it: everything but `metadata` and `status` is ignored by the server.
fn status_object(record: &Record) -> Value {
    let texts = |list: &[(String, Quantity)]| -> Value {
        list.iter()
            .map(|(key, value)| (key.clone(), Value::String(value.to_string())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    json!({
        "apiVersion": ApplicationAwareResourceQuota::api_version(&()),
        "kind": ApplicationAwareResourceQuota::kind(&()),
        "metadata": {
            "namespace": *record.namespace,
            "name": *record.name,
            "uid": record.uid.to_string(),
            "resourceVersion": record.version.precondition(),
        },
        "spec": {},
        "status": {
            "hard": texts(&record.target.hard),
            "used": texts(&record.target.used),
            "requests": record.target.requests,
            "limits": record.target.limits,
            "held": record.held,
            "charges": record.charges,
        },
    })
}

fn log<T>(answer: &Answer<T>, what: &'static str, namespace: &str, name: &str) {
    match answer {
        Answer::Done(_) => tracing::debug!(what, ns = namespace, name, "done"),
        Answer::Stale(_) => tracing::debug!(what, ns = namespace, name, "object has changed meanwhile"),
        Answer::Busy(after) => tracing::debug!(what, ns = namespace, name, ?after, "put off"),
        Answer::Refused(error) => tracing::warn!(what, ns = namespace, name, error, "refused"),
        Answer::Unknown(error) => tracing::warn!(what, ns = namespace, name, error, "outcome unknown"),
    }
}
