//! Whether the admission policies are in force at every API server, found by effect and remembered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use sluice_runtime::api_servers::{ApiServer, Servers};
use sluice_runtime::backoff::{Backoff, process_seed};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::probes::{Probes, Proof};

/// After this long an API server is asked anew although nothing has happened.
const FRESH: Duration = Duration::from_secs(60);
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// How long an API server that has much to do may take for an answer that no target waits for, and one that did not know of
/// a raise in time.
const PATIENCE: Duration = Duration::from_secs(10);
const PROMPT: Duration = Duration::from_secs(1);

/// An API server that has not answered so often in a row is not relied on.
const MOST_UNANSWERED: u32 = 2;

/// What is known of one API server.
#[derive(Clone, Debug, Default)]
struct Known {
    /// What it said instead of denying, or that it does not answer; `None`: both policies are in force there.
    missing: Option<Arc<str>>,
    unanswered: u32,
    /// It did not know of a raise in time since it was proven last.
    doubted: bool,
}

impl Known {
    /// What is known after an answer.
    fn after(old: Option<&Self>, answer: Proof) -> Self {
        match (answer, old) {
            (Proof::Given, _) => Self::default(),
            (Proof::Missing(why), _) => Self { missing: Some(why), ..Self::default() },
            // An API server that is busy still enforces what it enforced; one that is gone does not answer again.
            (Proof::Unanswered(why), Some(old)) => {
                let unanswered = old.unanswered.saturating_add(1);
                let missing = if unanswered >= MOST_UNANSWERED { Some(why) } else { old.missing.clone() };
                Self { missing, unanswered, doubted: old.doubted }
            }
            (Proof::Unanswered(why), None) => Self { missing: Some(why), unanswered: 1, doubted: false },
        }
    }

    /// Whether the API server answers after it did not: one that has just started may refuse what it allows and deny
    /// nothing until its caches are filled, so it is asked again soon.
    fn is_back(&self, old: Option<&Self>) -> bool {
        self.unanswered == 0 && old.is_some_and(|old| old.unanswered > 0)
    }
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
        self.servers.each().iter().find_map(|server| match known.get(&server.name) {
            Some(known) => Some(format!("API server {}: {}", server.name, known.missing.as_ref()?).into()),
            None => Some(format!("API server {} was not asked yet", server.name).into()),
        })
    }

    /// How many API servers there are, and how many of them enforce the policies.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let (known, servers) = (self.known.lock(), self.servers.each());
        let is_proven =
            |server: &&ApiServer| known.get(&server.name).is_some_and(|known| known.missing.is_none());
        let proven = servers.iter().filter(is_proven).count();
        (servers.len(), proven)
    }

    /// An API server did not know of a raise in time, and did not answer a proof in time either: nothing is raised until it
    /// does. KubeVirt's controller creates one target after the other in the whole cluster,
    /// so no second one may wait for such a server.
    pub fn doubt(&self, server: &ApiServer, why: &str) {
        let doubted = Known { missing: Some(why.into()), unanswered: 0, doubted: true };
        self.known.lock().insert(Arc::clone(&server.name), doubted);
        self.doubted.notify_one();
    }

    /// Asks every API server: at the start, when they change or one is doubted, and now and then.
    /// `asked` is called after each time.
    pub async fn keep(&self, probes: &Probes, asked: impl Fn(), cancel: CancellationToken) {
        let mut changes = self.servers.changes();
        let mut backoff = Backoff::new(RETRY.0, RETRY.1, process_seed());
        let work = async {
            loop {
                changes.mark_unchanged();
                let before = self.missing();
                let is_back = self.ask(probes).await;
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
                if is_settled || is_back {
                    backoff.reset();
                }
                let pause = if is_settled { FRESH } else { backoff.failed() };
                tokio::select! {
                    () = sleep(pause) => {}
                    () = self.doubted.notified() => {}
                    changed = changes.changed() => match changed {
                        Ok(()) => backoff.reset(),
                        Err(_) => return,
                    },
                }
            }
        };
        cancel.run_until_cancelled(work).await;
    }

    /// Returns whether an API server is back.
    async fn ask(&self, probes: &Probes) -> bool {
        let servers = self.servers.each();
        let patience = |server: &ApiServer| {
            let doubted = self.known.lock().get(&server.name).is_some_and(|known| known.doubted);
            if doubted { PROMPT } else { PATIENCE }
        };
        let proofs = servers.iter().map(|server| probes.prove(server, patience(server)));
        let answers = join_all(proofs).await;
        let mut known = self.known.lock();
        let before = std::mem::take(&mut *known);
        let mut is_back = false;
        for (server, answer) in servers.into_iter().zip(answers) {
            let old = before.get(&server.name);
            let now = Known::after(old, answer);
            is_back |= now.is_back(old);
            known.insert(server.name, now);
        }
        is_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_is_back_with_its_first_answer_whatever_that_is() {
        let gone = || Proof::Unanswered("connection refused".into());
        let forbidden = || Proof::Missing("RBAC: clusterrole not found".into());
        let proven = Known::after(None, Proof::Given);
        let busy = Known::after(Some(&proven), gone());
        assert!(busy.missing.is_none() && !busy.is_back(Some(&proven)), "it enforces what it enforced");
        let away = Known::after(Some(&busy), gone());
        assert!(away.missing.is_some() && !away.is_back(Some(&busy)));
        let starting = Known::after(Some(&away), forbidden());
        assert!(starting.missing.is_some() && starting.is_back(Some(&away)), "asked again soon");
        let lasting = Known::after(Some(&starting), forbidden());
        assert!(!lasting.is_back(Some(&starting)), "asked ever more rarely");
        assert!(Known::after(Some(&lasting), Proof::Given).missing.is_none());
        assert!(Known::after(None, gone()).missing.is_some(), "it was never proven");
    }
}
