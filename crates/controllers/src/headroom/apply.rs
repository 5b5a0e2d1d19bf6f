//! Does what the plan says, and reports how it went. Decides nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_api::{WindowMigration, names};
use sluice_engine::ChargeRules;
use sluice_engine::headroom::Need;
use sluice_headroom::{ClearError, Ending as WindowEnding, Headroom, Target};
use sluice_index::PodFacts;
use sluice_index::wire::PodWire;
use sluice_kube_ext::lease::WriteToken;
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::raw::{Call, JSON_PATCH, send};
use sluice_kube_ext::retry::{Failure, classify};

use super::action::{Action, Blocked, Done, Ending, Failed, Nudge, Opened, Outcome, Tell};
use super::place::NUDGE_KEY;

/// Limit for one request.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long a window may take in all, waiting for another one included.
const PATIENCE: Duration = Duration::from_secs(10);

/// Executes actions.
#[derive(Clone)]
pub struct Apply {
    client: kube::Client,
    headroom: Arc<Headroom>,
    token: WriteToken,
    writes: ApiWrites,
    rules: ChargeRules,
    tell: Arc<dyn Fn(Tell) + Send + Sync>,
}

#[derive(Deserialize)]
struct PodList {
    #[serde(default)]
    items: Vec<PodWire>,
}

impl Apply {
    /// Acts with `headroom` and `client` while `token` is held; what people are to be told goes to `tell`.
    pub fn new(
        client: kube::Client,
        headroom: Arc<Headroom>,
        token: WriteToken,
        writes: ApiWrites,
        rules: ChargeRules,
        tell: impl Fn(Tell) + Send + Sync + 'static,
    ) -> Self {
        Self { client, headroom, token, writes, rules, tell: Arc::new(tell) }
    }

    /// What writes need.
    pub(super) fn parts(&self) -> (kube::Client, WriteToken, ApiWrites) {
        (self.client.clone(), self.token.clone(), self.writes.clone())
    }

    /// Waits until every window of this process is closed.
    pub(super) async fn finish(&self) {
        self.headroom.finish().await;
    }

    /// Executes one action; `None` if nothing comes of it.
    pub async fn execute(&self, action: Action) -> Option<Outcome> {
        let namespace = action.namespace().map(Arc::clone);
        let result = match action {
            Action::Tell(tell) => {
                (self.tell)(tell);
                return None;
            }
            _ if !self.token.is_held() => Done::Failed(Failed::Other("the lease is not held".into())),
            Action::Sweep(namespace, _) => self.sweep(&namespace).await,
            Action::Look(blocked) => match self.source(&blocked).await {
                Ok(source) => Done::Looked(blocked.uid, source),
                Err(error) => failed("listing the source pod", &blocked.namespace, &error),
            },
            Action::Open { blocked, source, need } => self.open(blocked, &source, need).await,
            Action::Nudge(nudge) => self.nudge(&nudge).await,
        };
        namespace.map(|namespace| Outcome { namespace, result })
    }

    async fn sweep(&self, namespace: &Arc<str>) -> Done {
        match self.headroom.clear(namespace).await {
            Ok(cleared) => {
                if cleared.window || !cleared.restored.is_empty() {
                    tracing::info!(ns = %namespace, quotas = ?cleared.restored, window = cleared.window, "swept");
                }
                Done::Swept { restored: cleared.restored.len(), live: cleared.live_until.is_some() }
            }
            Err(error) => {
                tracing::warn!(ns = %namespace, %error, "sweep failed");
                Done::Failed(match &error {
                    ClearError::Restore { forbidden: true, why, .. } => Failed::Forbidden(Arc::clone(why)),
                    _ => Failed::Other(error.to_string().into()),
                })
            }
        }
    }

    /// What the pod of this virtual machine takes that is not a target; `None` if there is none.
    async fn source(&self, blocked: &Blocked) -> kube::Result<Option<Need>> {
        let (namespace, machine) = (&blocked.namespace, &blocked.machine_uid);
        let selector = format!("{}%3D{machine}", names::CREATED_BY_LABEL.replace('/', "%2F"));
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
        let call = Call { method: Method::GET, path, body: None };
        let pods: PodList = send(&self.client, call, DEADLINE).await?.decode()?;
        let now = Timestamp::now().as_second();
        let facts = pods.items.iter().map(|pod| PodFacts::read(pod, names::GATE, self.rules, now));
        // Hot-plug and other helpers carry the label too; the launcher is the largest.
        let needs = facts.filter_map(|facts| Some(Need::new(facts.charge.ok()?, facts.scope_facts)));
        Ok(needs
            .filter(|need| !need.charge.is_empty())
            .max_by_key(|need| need.charge.get(&sluice_engine::Resource::from_quota_key("requests.memory"))))
    }

    async fn open(&self, blocked: Blocked, expected: &Need, need: Need) -> Done {
        // What was expected may be old; then it is decided anew.
        match self.source(&blocked).await {
            Ok(source) if source.as_ref() != Some(expected) => return Done::Looked(blocked.uid, source),
            Ok(_) => {}
            Err(error) => return failed("listing the source pod", &blocked.namespace, &error),
        }
        let start = Instant::now();
        let target = Target {
            namespace: Arc::clone(&blocked.namespace),
            migration: WindowMigration {
                name: blocked.name.to_string(),
                uid: blocked.uid.to_string(),
                vmi: blocked.machine.to_string(),
            },
            pod: None,
            creator: blocked.creator.to_string(),
            need,
        };
        let ending = self.headroom.wake(target, PATIENCE).await;
        let took_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (ns, migration) = (&blocked.namespace, &blocked.name);
        tracing::info!(%ns, %migration, ending = ending.word(), took_ms, "window for a rejected migration");
        let ending = match ending {
            WindowEnding::Entered | WindowEnding::Covered => Ending::Entered,
            WindowEnding::Forbidden(said) => Ending::Forbidden(said),
            other => {
                tracing::debug!(%ns, %migration, ?other, "the target did not enter");
                Ending::InVain
            }
        };
        Done::Opened(blocked.uid, Opened { ending, took_ms })
    }

    async fn nudge(&self, nudge: &Nudge) -> Done {
        let Nudge { namespace, quota, .. } = nudge;
        let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{quota}/status");
        let body = Some((JSON_PATCH, patch(nudge).to_string().into_bytes()));
        let call = Call { method: Method::PATCH, path, body };
        let write = async { send(&self.client, call, DEADLINE).await?.check() };
        match self.writes.record("resourcequotas/status", "patch", write).await {
            Ok(()) => Done::Nudged,
            Err(error) => failed("waking KubeVirt's controller", namespace, &error),
        }
    }
}

fn patch(nudge: &Nudge) -> Value {
    let path = format!("/status/used/{}", NUDGE_KEY.replace('~', "~0").replace('/', "~1"));
    let test = json!({ "op": "test", "path": "/metadata/uid", "value": nudge.uid.to_string() });
    if nudge.marked {
        json!([test, { "op": "remove", "path": path }])
    } else {
        json!([test, { "op": "add", "path": path, "value": "0" }])
    }
}

fn failed(tried: &'static str, namespace: &str, error: &kube::Error) -> Done {
    tracing::warn!(ns = namespace, %error, "failed: {tried}");
    Done::Failed(match classify(error) {
        Failure::Forbidden => Failed::Forbidden(error.to_string().into()),
        _ => Failed::Other(error.to_string().into()),
    })
}
