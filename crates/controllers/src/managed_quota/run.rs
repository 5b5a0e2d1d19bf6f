//! Connects the state to a cluster: events in, requests out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use sluice_api::names;
use sluice_index::{ArqWire, Key, ResourceQuotaRecord, ResourceQuotaWire, ResourceQuotas, Watched as _};
use sluice_runtime::backoff::process_seed;
use sluice_runtime::client::with_deadline;
use sluice_runtime::lease::{Leadership, WriteToken};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::retry::{Failure, classify};
use sluice_runtime::watch::{Event, WatchHealth};
use sluice_window::Observed;
use tokio::sync::{Notify, watch as latest};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::plan::Write;
use super::state::{State, WriteResult};
use crate::gate::Gate;

const DEADLINE: Duration = Duration::from_secs(5);
/// Requests under way at a time.
const AT_A_TIME: usize = 8;
const PLURAL: &str = "resourcequotas";

/// The loop; clones share its state.
#[derive(Clone)]
pub struct ManagedQuotas {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    news: Notify,
    epoch: Instant,
    observed: Arc<Observed>,
    gate: Gate,
}

impl ManagedQuotas {
    /// Nothing is known yet. What managed quotas say is told to `gate`.
    #[must_use]
    pub fn new(observed: Arc<Observed>, gate: Gate) -> Self {
        let state = Mutex::new(State::new(process_seed()));
        Self {
            shared: Arc::new(Shared { state, news: Notify::new(), epoch: Instant::now(), observed, gate }),
        }
    }

    /// An event of the watch of `ApplicationAwareResourceQuota`s. The gate has to have it already.
    pub fn on_arqs(&self, event: &Event<ArqWire>) {
        let state = &mut self.shared.state.lock();
        let changed = match event {
            Event::Init => {
                state.begin_list();
                Vec::new()
            }
            Event::InitApply(arq) | Event::Apply(arq) => {
                let key = key_of(arq);
                if state.upsert(&key, arq) { vec![key] } else { Vec::new() }
            }
            Event::InitDone => state.end_list(),
            Event::Delete(arq) => {
                let key = key_of(arq);
                if state.remove(&key) { vec![key] } else { Vec::new() }
            }
        };
        self.shared.tell(state, &changed);
    }

    /// An event of the watch of ResourceQuotas. The index has to have it already.
    pub fn on_resource_quotas(&self, event: &Event<ResourceQuotaWire>) {
        let state = &mut self.shared.state.lock();
        let changed: Vec<Key> = match event {
            Event::Init => return,
            // Some may have gone unseen.
            Event::InitDone => state.keys(),
            Event::InitApply(quota) | Event::Apply(quota) | Event::Delete(quota) => {
                let Key { namespace, name } = ResourceQuotas::key(quota);
                let Some(arq) = name.strip_suffix(names::MANAGED_QUOTA_SUFFIX) else { return };
                vec![Key { namespace, name: arq.into() }]
            }
        };
        changed.iter().for_each(|key| state.touch(key));
        self.shared.tell(state, &changed);
    }

    /// Writes while this process leads, until `cancel`. `watches`: of both kinds.
    pub async fn run(
        self,
        (client, writes): (Client, ApiWrites),
        (token, mut leadership): (WriteToken, latest::Receiver<Leadership>),
        watches: [WatchHealth; 2],
        cancel: CancellationToken,
    ) {
        let work = async {
            if leadership.wait_for(Leadership::is_leading).await.is_err() {
                return;
            }
            // A quota that was not seen yet would look like one that is gone.
            for watch in &watches {
                watch.synced().await;
            }
            self.act(&Writer { client, writes, token }).await;
        };
        cancel.run_until_cancelled(work).await;
        // A leader that lost its lease ends; another one goes on when it has it.
        cancel.cancelled().await;
    }

    async fn act(&self, writer: &Writer) {
        let mut requests = JoinSet::new();
        loop {
            while requests.len() < AT_A_TIME {
                let Some((key, write)) = self.shared.next() else { break };
                let (shared, writer) = (Arc::clone(&self.shared), writer.clone());
                requests.spawn(async move {
                    let answer = writer.write(&key, write).await;
                    shared.answered(&key, answer);
                });
            }
            let due = self.shared.state.lock().next_due_ms();
            let timer = async {
                match due {
                    Some(ms) => {
                        let at = self.shared.epoch + Duration::from_millis(ms + 1);
                        tokio::time::sleep_until(at.into()).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shared.news.notified() => {}
                Some(_) = requests.join_next() => {}
                () = timer, if requests.len() < AT_A_TIME => {}
            }
        }
    }
}

fn key_of(arq: &ArqWire) -> Key {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    Key { namespace: text(&arq.metadata.namespace), name: text(&arq.metadata.name) }
}

impl Shared {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn quota(&self, key: &Key) -> Option<Arc<ResourceQuotaRecord>> {
        let name = names::managed_quota(&key.name);
        self.observed.read(|index| index.resource_quotas.record(&key.namespace, &name).cloned())
    }

    /// Tells the gate what has changed, in the order in which it was seen.
    fn tell(&self, state: &mut State, changed: &[Key]) {
        for key in changed {
            if let Some(status) = state.news(key, self.quota(key).as_deref()) {
                self.gate.on_managed_status(key, status);
            }
        }
        if !changed.is_empty() {
            self.news.notify_one();
        }
    }

    fn next(&self) -> Option<(Key, Write)> {
        let mut state = self.state.lock();
        let now = self.now_ms();
        while let Some(key) = state.next(now) {
            if let Some(write) = state.decide(&key, self.quota(&key).as_deref(), now) {
                return Some((key, write));
            }
        }
        None
    }

    fn answered(&self, key: &Key, answer: WriteResult) {
        let mut state = self.state.lock();
        state.answered(key, answer, self.now_ms());
        self.tell(&mut state, std::slice::from_ref(key));
    }
}

#[derive(Clone)]
struct Writer {
    client: Client,
    writes: ApiWrites,
    token: WriteToken,
}

impl Writer {
    async fn write(&self, key: &Key, write: Write) -> WriteResult {
        if !self.token.is_held() {
            return WriteResult::Unsure;
        }
        let (verb, result) = match write {
            Write::Create(object) => ("create", self.create(key, object).await),
            Write::Update(patch) => ("patch", self.patch(key, &patch).await),
            Write::Delete(uid) => ("delete", self.delete(key, uid.to_string()).await),
        };
        let (ns, quota) = (&key.namespace, &key.name);
        match result {
            Ok(()) => {
                tracing::info!(%ns, %quota, verb, "managed ResourceQuota written");
                WriteResult::Done
            }
            Err(error) => match classify(&error) {
                // What is there now comes by the watch.
                Failure::Conflict | Failure::NotFound | Failure::AlreadyExists => WriteResult::Unsure,
                failure => {
                    tracing::warn!(%ns, %quota, verb, %error, "managed ResourceQuota not written");
                    if failure.is_transient() {
                        WriteResult::Unsure
                    } else {
                        WriteResult::Refused(error.to_string())
                    }
                }
            },
        }
    }

    async fn create(&self, key: &Key, object: serde_json::Value) -> kube::Result<()> {
        let object: ResourceQuota = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let (api, params) = (self.api(key), PostParams::default());
        self.send("create", api.create(&params, &object)).await
    }

    async fn patch(&self, key: &Key, patch: &serde_json::Value) -> kube::Result<()> {
        let (api, name) = (self.api(key), names::managed_quota(&key.name));
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.send("patch", api.patch(&name, &params, &patch)).await
    }

    async fn delete(&self, key: &Key, uid: String) -> kube::Result<()> {
        let (api, name) = (self.api(key), names::managed_quota(&key.name));
        let params =
            DeleteParams::default().preconditions(Preconditions { uid: Some(uid), resource_version: None });
        self.send("delete", api.delete(&name, &params)).await
    }

    fn api(&self, key: &Key) -> Api<ResourceQuota> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn send<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<()> {
        let write = async { with_deadline(DEADLINE, request).await.map(drop) };
        self.writes.record(PLURAL, verb, write).await
    }
}
