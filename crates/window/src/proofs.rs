//! Whether the admission policies are in force at every API server, found by effect and remembered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use sluice_kube_ext::retry::{Backoff, process_seed};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::probes::{Probes, Proof};
use crate::servers::{Peer, Servers};

/// After this long an API server is asked anew although nothing has happened.
const FRESH: Duration = Duration::from_secs(60);
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// An API server that has not answered so often in a row is not relied on.
const MOST_UNANSWERED: u32 = 2;

/// What is known of one API server.
#[derive(Clone, Debug, Default)]
struct Known {
    /// What it said instead of denying, or that it does not answer; `None`: both policies are in force there.
    missing: Option<Arc<str>>,
    unanswered: u32,
}

/// What is known of the policies.
#[derive(Debug)]
pub struct Proofs {
    servers: Arc<Servers>,
    /// By the name of the API server.
    known: Mutex<BTreeMap<Arc<str>, Known>>,
    doubted: Notify,
}

impl Proofs {
    /// Nothing is proven yet.
    #[must_use]
    pub fn new(servers: Arc<Servers>) -> Self {
        Self { servers, known: Mutex::default(), doubted: Notify::new() }
    }

    /// Why nothing is to be raised; `None` if both policies were in force at every API server when it was last asked.
    #[must_use]
    pub fn missing(&self) -> Option<Arc<str>> {
        let known = self.known.lock();
        self.servers.each().iter().find_map(|peer| match known.get(&peer.name) {
            Some(known) => Some(format!("API server {}: {}", peer.name, known.missing.as_ref()?).into()),
            None => Some(format!("API server {} was not asked yet", peer.name).into()),
        })
    }

    /// How many API servers there are, and how many of them enforce the policies.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let (known, peers) = (self.known.lock(), self.servers.each());
        let is_proven = |peer: &&Peer| known.get(&peer.name).is_some_and(|known| known.missing.is_none());
        let proven = peers.iter().filter(is_proven).count();
        (peers.len(), proven)
    }

    /// An API server did not know of a raise in time. One namespace may keep it busy: it is asked again, and relied on until
    /// then.
    pub fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Asks every API server: at the start, when they change or one is doubted, and now and then. `namespace` is that of the
    /// installation; `asked` is called after each time.
    pub async fn keep(&self, probes: &Probes, namespace: &str, asked: impl Fn(), cancel: CancellationToken) {
        let mut changes = self.servers.changes();
        let mut backoff = Backoff::new(RETRY.0, RETRY.1, process_seed());
        let work = async {
            loop {
                changes.mark_unchanged();
                let before = self.missing();
                self.ask(probes, namespace).await;
                asked();
                let missing = self.missing();
                if missing != before {
                    match &missing {
                        Some(why) => {
                            tracing::warn!(%why, "no quota is raised: admission policies are not in force");
                        }
                        None => tracing::info!("admission policies are in force at every API server"),
                    }
                }
                let is_settled =
                    self.known.lock().values().all(|known| known.missing.is_none() && known.unanswered == 0);
                let pause = if is_settled { FRESH } else { backoff.failed() };
                if is_settled {
                    backoff.reset();
                }
                tokio::select! {
                    () = sleep(pause) => {}
                    () = self.doubted.notified() => {}
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        };
        cancel.run_until_cancelled(work).await;
    }

    async fn ask(&self, probes: &Probes, namespace: &str) {
        let peers = self.servers.each();
        let answers = join_all(peers.iter().map(|peer| probes.prove(peer, namespace))).await;
        let mut known = self.known.lock();
        let mut before = std::mem::take(&mut *known);
        for (peer, answer) in peers.into_iter().zip(answers) {
            let old = before.remove(&peer.name);
            let now = match (answer, old) {
                (Proof::Given, _) => Known::default(),
                (Proof::Missing(why), _) => Known { missing: Some(why), unanswered: 0 },
                // An API server that is busy still enforces what it enforced; one that is gone does not answer again.
                (Proof::Unanswered(why), Some(old)) => {
                    let unanswered = old.unanswered.saturating_add(1);
                    let missing = if unanswered >= MOST_UNANSWERED { Some(why) } else { old.missing };
                    Known { missing, unanswered }
                }
                (Proof::Unanswered(why), None) => Known { missing: Some(why), unanswered: 1 },
            };
            known.insert(peer.name, now);
        }
    }
}
