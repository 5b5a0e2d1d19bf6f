//! Connects the state to a cluster: events in, requests out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use parking_lot::Mutex;
use sluice_index::{Aaqs, ClusterResourceQuotas, Key, Observed};
use sluice_runtime::backoff::process_seed;
use sluice_runtime::lease::{Leadership, WriteToken};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request::Answer;
use sluice_runtime::watch::WatchHealth;
use tokio::sync::{Notify, watch as latest};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::existing::Existing;
use super::kind::ManagedKind;
use super::plan::Write;
use super::state::State;
use super::writer::Writer;
use sluice_gate::Gate;

/// Requests under way at a time.
const AT_A_TIME: usize = 8;

/// The loop of one kind; clones share its state.
#[derive(Clone)]
pub struct ManagedQuotas {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub kind: ManagedKind,
    pub state: Mutex<State>,
    pub observing: Observing,
    news: Notify,
    epoch: Instant,
    gate: Gate,
}

/// Where managed quotas are known.
pub(super) enum Observing {
    /// ResourceQuotas, which head-room knows.
    Namespaces(Arc<Observed>),
    /// ClusterResourceQuotas. Locked after the state.
    Cluster(Mutex<ObservedCluster>),
}

/// What else the loop of ClusterResourceQuotas knows.
#[derive(Debug, Default)]
pub(super) struct ObservedCluster {
    pub quotas: ClusterResourceQuotas,
    pub aaqs: Aaqs,
}

impl ManagedQuotas {
    /// The managed quotas of `ApplicationAwareResourceQuota`s. What they say is told to `gate`.
    #[must_use]
    pub fn of_namespaces(observed: Arc<Observed>, gate: Gate) -> Self {
        Self::new(ManagedKind::ResourceQuota, Observing::Namespaces(observed), gate)
    }

    /// Those of `ApplicationAwareClusterResourceQuota`s.
    #[must_use]
    pub fn of_clusters(gate: Gate) -> Self {
        Self::new(ManagedKind::ClusterResourceQuota, Observing::Cluster(Mutex::default()), gate)
    }

    fn new(kind: ManagedKind, observing: Observing, gate: Gate) -> Self {
        let state = Mutex::new(State::new(kind, process_seed()));
        let (news, epoch) = (Notify::new(), Instant::now());
        Self { shared: Arc::new(Shared { kind, state, observing, news, epoch, gate }) }
    }

    /// Writes while this process leads, until `cancel`. `watches`: all that it is fed by.
    pub async fn run(
        self,
        (client, writes): (Client, ApiWrites),
        (token, mut leadership): (WriteToken, latest::Receiver<Leadership>),
        watches: Vec<WatchHealth>,
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
            self.act(&Writer { kind: self.shared.kind, client, writes, token }).await;
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

impl Shared {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn existing(&self, key: &Key) -> Option<Existing> {
        let name = self.kind.name(key);
        match &self.observing {
            Observing::Namespaces(observed) => observed
                .read(|index| index.resource_quotas.record(&key.namespace, &name).cloned())
                .map(Existing::from),
            Observing::Cluster(observed) => observed.lock().quotas.record(&name).cloned().map(Existing::from),
        }
    }

    /// Tells the gate what has changed, in the order in which it was seen.
    pub fn tell(&self, state: &mut State, changed: &[Key]) {
        for key in changed {
            if let Some(status) = state.news(key, self.existing(key).as_ref()) {
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
            if let Some(write) = state.decide(&key, self.existing(&key).as_ref(), now) {
                return Some((key, write));
            }
        }
        None
    }

    fn answered(&self, key: &Key, answer: Answer<()>) {
        let mut state = self.state.lock();
        state.answered(key, answer, self.now_ms());
        self.tell(&mut state, std::slice::from_ref(key));
    }
}
