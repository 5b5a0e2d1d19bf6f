//! Does what the plan says, and reports how it went. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Resource;
use kube::api::{ListParams, ObjectList, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota, names};
use sluice_engine::Quantity;
use sluice_index::{PodWire, QuotaWire};
use sluice_runtime::client::with_deadline;
use sluice_runtime::lease::WriteToken;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::retry::{Failure, classify};
use tokio::sync::Semaphore;

use super::action::{Action, Answer, GateEvent, Outcome, Record, Release};

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
    write_event: Arc<dyn Fn(GateEvent) -> BoxFuture<'static, bool> + Send + Sync>,
    releases: Arc<Semaphore>,
    others: Arc<Semaphore>,
    request_deadline: Duration,
}

impl Apply {
    /// Writes with `client` while `token` is held; `write_event` writes an event and says whether it is written.
    ///
    /// No request takes longer than `request_deadline`: a write of a process that lost its lease must be dead
    /// before another one leads, so it plus the renew deadline must not exceed the lease's duration.
    pub fn new(
        client: kube::Client,
        token: WriteToken,
        writes: ApiWrites,
        write_event: impl Fn(GateEvent) -> BoxFuture<'static, bool> + Send + Sync + 'static,
        concurrency: Concurrency,
        request_deadline: Duration,
    ) -> Self {
        Self {
            client,
            token,
            writes,
            write_event: Arc::new(write_event),
            releases: Arc::new(Semaphore::new(concurrency.releases)),
            others: Arc::new(Semaphore::new(concurrency.others)),
            request_deadline,
        }
    }

    /// Executes one action; `None` if nothing comes of it.
    pub async fn execute(&self, action: Action) -> Option<Outcome> {
        // The state bounds how many events are under way, and they keep no other request from its turn.
        if let Action::WriteEvent(event) = action {
            let is_written = self.token.is_held() && (self.write_event)(event.clone()).await;
            return Some(Outcome::EventWritten(event, is_written));
        }
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
            Action::Read(pod) => {
                let path = Pod::url_path(&(), Some(&pod.namespace));
                let answer = self.reread(Request::new(&path).get(&pod.name, &Default::default())).await;
                log(&answer, "reading pod", &pod.namespace, &pod.name);
                Some(Outcome::Read(pod.pod, pod.uid, answer))
            }
            Action::ListQuotas(id, namespace) => {
                let answer = self.list_quotas(&namespace).await;
                log(&answer, "listing quotas", &namespace, "");
                Some(Outcome::Listed(id, answer))
            }
            // Who has the watches and the questions does that; events are written above.
            Action::CatchUp | Action::Answer(..) | Action::WriteEvent(_) => None,
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
            Err(error) => match refusal(&error) {
                // An earlier request for it may have been done although it was not answered.
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

    /// The resource version that there is now. A list that names no version is read from a quorum of the store
    /// (kubernetes.io/docs/reference/using-api/api-concepts, *Semantics for get and list*). None: there was no answer, or
    /// the server's versions are not numbers.
    pub(super) async fn newest_version(&self) -> Option<u64> {
        let path = Pod::url_path(&(), None);
        let request = Request::new(&path).list(&ListParams::default().limit(1));
        let list = self.send::<ObjectList<PodWire>>(request).await.ok()?;
        list.metadata.resource_version?.parse().ok()
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
        "op": "test", "path": "/spec/schedulingGates", "value": [{"name": names::GATE}]
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
    let mut object = json!({
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
    });
    let status = object.get_mut("status").and_then(Value::as_object_mut);
    if let (Some(condition), Some(status)) = (uncounted(record), status) {
        status.insert("conditions".to_owned(), json!([condition]));
    }
    object
}

/// The condition about keys that nothing counts; it is gone with the last of them.
fn uncounted(record: &Record) -> Option<Condition> {
    let message = &record.target.uncounted;
    let since = jiff::Timestamp::from_second(record.uncounted_since).ok()?;
    (!message.is_empty()).then(|| Condition {
        type_: names::UNCOUNTED_KEYS.to_owned(),
        status: "True".to_owned(),
        reason: "NotEnforced".to_owned(),
        message: message.clone(),
        last_transition_time: Time(since),
        observed_generation: None,
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

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use sluice_engine::ChargeRules;
    use sluice_index::Targeting;

    use super::*;
    use crate::gate::{GateConfig, Moment, State};

    const AT: Moment = Moment { mono_ms: 0, unix_ms: 1_767_225_600_000 };
    const LATER: Moment = Moment { mono_ms: 60_000, unix_ms: AT.unix_ms + 60_000 };

    /// What is written of a quota with these keys and this status; `None` if nothing is.
    fn written(state: &mut State, version: u64, keys: &[&str], status: &Value, now: Moment) -> Option<Value> {
        let hard: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!("1"))).collect();
        let metadata =
            json!({ "name": "q", "namespace": "team", "uid": "1", "resourceVersion": version.to_string() });
        let quota = json!({ "metadata": metadata, "spec": { "hard": hard }, "status": status });
        state.apply_quota(&serde_json::from_value(quota).unwrap(), now);
        match state.plan(now).as_slice() {
            [] => None,
            [Action::Record(record)] => Some(status_object(record)),
            other => panic!("one write at most: {other:?}"),
        }
    }

    fn leader() -> State {
        let config = GateConfig::new(names::GATE, ChargeRules::for_minor(36));
        let mut state = State::new(config, Targeting::new(kube::core::Selector::default(), [].into()));
        state.lead(AT);
        state
    }

    #[test]
    fn keys_that_nothing_counts_are_a_condition_as_long_as_there_are_some() {
        let first = written(&mut leader(), 1, &["pods", "cpu/vmi"], &json!({}), AT).unwrap();
        let condition = first.pointer("/status/conditions/0").unwrap();
        assert_eq!(condition["type"], "UncountedKeys");
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("NotEnforced")));
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert!(condition["message"].as_str().unwrap().contains("cpu/vmi: "), "{condition}");
        assert_eq!(first["status"]["used"], json!({ "cpu/vmi": "0", "pods": "0" }));
        // Another leader does not write it again, and it keeps its time when the keys change.
        let status = &first["status"];
        assert_eq!(written(&mut leader(), 2, &["pods", "cpu/vmi"], status, LATER), None);
        let more = written(&mut leader(), 2, &["pods", "cpu/vmi", "a.com/b"], status, LATER).unwrap();
        let condition = more.pointer("/status/conditions/0").unwrap();
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert!(condition["message"].as_str().unwrap().contains("a.com/b: "), "{condition}");
        let none = written(&mut leader(), 3, &["pods"], &more["status"], LATER).unwrap();
        assert_eq!(none["status"].get("conditions"), None);
        assert_eq!(written(&mut leader(), 4, &["pods"], &none["status"], LATER), None);
    }

    #[test]
    fn a_condition_that_was_taken_away_or_turned_comes_back() {
        let keys = ["pods", "cpu/vmi"];
        let first = written(&mut leader(), 1, &keys, &json!({}), AT).unwrap();
        for status in ["False", "Unknown"] {
            let mut edited = first["status"].clone();
            edited["conditions"][0]["status"] = json!(status);
            assert!(written(&mut leader(), 2, &keys, &edited, LATER).is_some(), "{status}");
        }
        let mut edited = first["status"].clone();
        edited["conditions"] = json!([]);
        assert!(written(&mut leader(), 2, &keys, &edited, LATER).is_some());
    }
}
