//! Whether the admission policies are in force at every API server, found by effect and remembered.

use std::sync::Arc;
use std::time::Duration;

use sluice_runtime::api_servers::{ApiServer, ByServer, Pace, PerServer, Round, Servers};
use tokio_util::sync::CancellationToken;

use crate::probes::{Probes, Proof};

/// How often API servers are asked although nothing has happened.
const PACE: Pace =
    Pace { settled: Duration::from_secs(60), retry: (Duration::from_millis(200), Duration::from_secs(10)) };

/// How long an API server that has much to do may take for an answer that no target waits for, and one that did not know of
/// a raise in time.
const PATIENCE: Duration = Duration::from_secs(10);
const PROMPT: Duration = Duration::from_secs(1);

/// An API server that has not answered so often in a row is not relied on.
const MOST_UNANSWERED: u32 = 2;

/// What is known of one API server.
#[derive(Clone, Debug, Default)]
struct ProofState {
    /// What it said instead of denying, or that it does not answer; `None`: both policies are in force there.
    missing: Option<Arc<str>>,
    unanswered: u32,
    /// The server did not know of a raise in time since it was proven last.
    doubted: bool,
}

impl ProofState {
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
pub struct Proofs(PerServer<ProofState>);

impl Proofs {
    /// Nothing is proven yet.
    #[must_use]
    pub fn new(servers: Arc<Servers>) -> Self {
        Self(PerServer::new(servers, PACE))
    }

    /// Why nothing is to be raised; `None` if both policies were in force at every API server when it was last asked.
    #[must_use]
    pub fn missing(&self) -> Option<Arc<str>> {
        self.missing_in(&self.0.known())
    }

    fn missing_in(&self, known: &ByServer<ProofState>) -> Option<Arc<str>> {
        self.0.each().iter().find_map(|server| match known.get(&server.name) {
            Some(known) => Some(format!("API server {}: {}", server.name, known.missing.as_ref()?).into()),
            None => Some(format!("API server {} was not asked yet", server.name).into()),
        })
    }

    /// How many API servers there are, and how many of them enforce the policies.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let (known, servers) = (self.0.known(), self.0.each());
        let is_proven =
            |server: &&ApiServer| known.get(&server.name).is_some_and(|known| known.missing.is_none());
        let proven = servers.iter().filter(is_proven).count();
        (servers.len(), proven)
    }

    /// An API server did not know of a raise in time, and did not answer a proof in time either: nothing is raised until it
    /// does. KubeVirt's controller creates one target after the other in the whole cluster,
    /// so no second one may wait for such a server.
    pub fn doubt(&self, server: &ApiServer, why: &str) {
        self.0.doubt(server, ProofState { missing: Some(why.into()), unanswered: 0, doubted: true });
    }

    /// Asks every API server: at the start, when they change or one is doubted, and now and then.
    /// `asked` is called after each time.
    pub async fn keep(&self, probes: &Probes, asked: impl Fn(), cancel: CancellationToken) {
        let ask = |server: ApiServer| {
            let doubted = self.0.known().get(&server.name).is_some_and(|known| known.doubted);
            let patience = if doubted { PROMPT } else { PATIENCE };
            async move { probes.prove(&server, patience).await }
        };
        let taken = |before: &ByServer<ProofState>| {
            asked();
            let known = self.0.known();
            self.log(before, &known);
            if known.values().all(|known| known.missing.is_none() && known.unanswered == 0) {
                Round::Settled
            } else if known.iter().any(|(name, known)| known.is_back(before.get(name))) {
                Round::Better
            } else {
                Round::Unsettled
            }
        };
        self.0.keep(ask, ProofState::after, taken, cancel).await;
    }

    fn log(&self, before: &ByServer<ProofState>, known: &ByServer<ProofState>) {
        let missing = self.missing_in(known);
        if missing == self.missing_in(before) {
            return;
        }
        match missing {
            Some(why) => tracing::warn!(%why, "no quota is raised: admission policies are not in force"),
            None => tracing::info!("admission policies are in force at every API server"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_is_back_with_its_first_answer_whatever_that_is() {
        let gone = || Proof::Unanswered("connection refused".into());
        let forbidden = || Proof::Missing("RBAC: clusterrole not found".into());
        let proven = ProofState::after(None, Proof::Given);
        let busy = ProofState::after(Some(&proven), gone());
        assert!(busy.missing.is_none() && !busy.is_back(Some(&proven)), "it enforces what it enforced");
        let away = ProofState::after(Some(&busy), gone());
        assert!(away.missing.is_some() && !away.is_back(Some(&busy)));
        let starting = ProofState::after(Some(&away), forbidden());
        assert!(starting.missing.is_some() && starting.is_back(Some(&away)), "asked again soon");
        let lasting = ProofState::after(Some(&starting), forbidden());
        assert!(!lasting.is_back(Some(&starting)), "asked ever more rarely");
        assert!(ProofState::after(Some(&lasting), Proof::Given).missing.is_none());
        assert!(ProofState::after(None, gone()).missing.is_some(), "it was never proven");
    }
}
