//! Dry runs that tell what an API server knows and enforces.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::{HeadroomProbe, HeadroomProbeSpec, names};
use sluice_engine::headroom::MARK;
use sluice_runtime::backoff::Backoff;
use sluice_runtime::request::{Reply, objects, send};
use tokio::time::{Instant, sleep};

use crate::clock::ServerClock;
use crate::requests::DEADLINE;
use crate::servers::{Peer, Servers};

/// The first pause between two probes, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// So many probes follow the first one without a pause.
const AT_ONCE: u32 = 2;
/// How long an API server that has much to do may take for an answer that no target waits for.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long quota admission may know a mark that the policy does not heed; then the policy is missing.
const UNHEEDED: Duration = Duration::from_millis(250);
/// What a probe names that the admission policy has to let through.
const NO_MARK: i64 = 1;
/// A lock until this moment (the year 2200, in ms) is longer than any that is allowed.
const FAR_AWAY: i64 = 7_258_118_400_001;

/// Whether the policies are in force at an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Both have denied what they have to deny.
    Given,
    /// One did not. What was said instead.
    Missing(Arc<str>),
    /// There was no answer, which proves nothing.
    Unanswered(Arc<str>),
}

/// Asks API servers in dry runs.
#[derive(Debug)]
pub struct Probes {
    servers: Arc<Servers>,
    clock: Arc<ServerClock>,
}

impl Probes {
    /// Asks each of `servers`.
    #[must_use]
    pub const fn new(servers: Arc<Servers>, clock: Arc<ServerClock>) -> Self {
        Self { servers, clock }
    }

    /// Asks each API server until it knows of this mark in a quota of the namespace, and until its quota admission has judged
    /// what came before. The admission policy denies a probe that names the mark; a probe that names none goes on to quota
    /// admission, which has one queue for each namespace and refuses it by the mark: `plain` says that this can be told,
    /// because one quota is marked and it has no scopes. Then that one answer tells both.
    ///
    /// # Errors
    /// When one of them did not in `time`, or (not asked if `plain`) goes on letting probes on to quota admission although
    /// that knows the mark: then its policy is missing, and what is raised is open to all. The error has its address and its last answer.
    pub async fn know(
        &self,
        namespace: &str,
        mark: i64,
        plain: bool,
        time: Duration,
    ) -> Result<(), (Peer, Arc<str>)> {
        let (end, peers) = (Instant::now() + time, self.servers.each());
        let limited = format!("limited: {MARK}={mark}");
        let limited = &limited;
        let asked = peers.into_iter().map(|peer| async move {
            for _ in 0..self.servers.proofs() {
                let said = async {
                    if plain {
                        return self.until_denied(&peer, namespace, NO_MARK, limited, end).await;
                    }
                    self.until_denied(&peer, namespace, mark, names::PROBE_DENIED, end).await?;
                    self.until_denied(&peer, namespace, NO_MARK, "", end).await
                };
                said.await.map_err(|said| (peer.clone(), said))?;
            }
            Ok(())
        });
        try_join_all(asked).await.map(drop)
    }

    /// An empty `text` is content with any answer of quota admission.
    async fn until_denied(
        &self,
        peer: &Peer,
        namespace: &str,
        mark: i64,
        text: &str,
        end: Instant,
    ) -> Result<(), Arc<str>> {
        let body = probe(mark)?;
        let (mut backoff, mut unheeded) = (Backoff::exact(PAUSE.0, PAUSE.1), Unheeded::default());
        loop {
            let time = end.saturating_duration_since(Instant::now()).min(DEADLINE);
            let said = match self.try_create(&peer.client, namespace, &body, time).await {
                Ok(reply) if is_denial(&reply, text) || (text.is_empty() && reply.is_success()) => {
                    return Ok(());
                }
                Ok(reply) if reply.is_success() => "the mark is not known there".to_owned(),
                Ok(reply) => reply.status().message,
                Err(error) => error.to_string(),
            };
            if unheeded.lasts(text == names::PROBE_DENIED && is_limited_by(&said, mark)) {
                let policy = names::LOCK_POLICY;
                return Err(format!("its policy {policy} does not heed the mark: {said}").into());
            }
            let pause = backoff.failed();
            if Instant::now() + pause >= end {
                return Err(said.into());
            }
            // A watch has to reach the API server's own cache first; nothing announces that it did. Mostly it has by now: a
            // pause, which the timer makes two milliseconds at least, would be longer than what is left to wait for.
            if backoff.failures() > AT_ONCE {
                sleep(pause).await;
            }
        }
    }

    /// Asks one API server whether both policies are in force, with the quota that is installed for this in `namespace`.
    pub async fn prove(&self, peer: &Peer, namespace: &str) -> Proof {
        match self.try_prove(peer, namespace).await {
            Ok(()) => Proof::Given,
            Err(proof) => proof,
        }
    }

    async fn try_prove(&self, peer: &Peer, namespace: &str) -> Result<(), Proof> {
        let body = probe(0).map_err(Proof::Missing)?;
        let reply = self.try_create(&peer.client, namespace, &body, PATIENCE).await;
        expect(names::LOCK_POLICY, reply, names::PROBE_DENIED)?;
        let mark = json!({ MARK: FAR_AWAY.to_string() });
        let patch = Patch::Merge(json!({ "status": { "hard": mark, "used": mark } }));
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let quotas = objects::<ResourceQuota>(Some(namespace));
        let request = quotas.patch_subresource("status", names::PROOF_QUOTA, &dry_run, &patch);
        let reply = send(&peer.client, request, PATIENCE).await;
        expect(names::CHARGE_POLICY, reply, names::CHARGE_DENIED)
    }

    async fn try_create(
        &self,
        client: &Client,
        namespace: &str,
        body: &Bytes,
        time: Duration,
    ) -> kube::Result<Reply> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let request = objects::<HeadroomProbe>(Some(namespace)).create(&dry_run, body.to_vec());
        let reply = send(client, request, time).await?;
        self.clock.observe(reply.date);
        Ok(reply)
    }
}

/// Since when quota admission knows a mark that the policy does not heed: it may know it a moment earlier than the policy.
#[derive(Debug, Default)]
struct Unheeded(Option<Instant>);

impl Unheeded {
    /// Takes note of an answer. Returns whether every answer of the last [`UNHEEDED`] was like that: one that was not ends it,
    /// such as that of another API server behind the same address.
    fn lasts(&mut self, is_unheeded: bool) -> bool {
        if !is_unheeded {
            self.0 = None;
            return false;
        }
        self.0.get_or_insert_with(Instant::now).elapsed() > UNHEEDED
    }
}

fn expect(policy: &str, reply: kube::Result<Reply>, denial: &str) -> Result<(), Proof> {
    let said = match reply {
        Ok(reply) if is_denial(&reply, denial) => return Ok(()),
        Ok(reply) if reply.is_success() => "what it denies was let in".to_owned(),
        Ok(reply) if reply.code == 429 || reply.code >= 500 => {
            return Err(Proof::Unanswered(reply.status().message.into()));
        }
        Ok(reply) => reply.status().message,
        Err(error) => return Err(Proof::Unanswered(error.to_string().into())),
    };
    Err(Proof::Missing(format!("admission policy {policy} is not in force: {said}").into()))
}

fn is_denial(reply: &Reply, text: &str) -> bool {
    reply.code == 403 && reply.status().message.contains(text)
}

/// Whether quota admission says that a quota has a mark of this session, or a later one.
fn is_limited_by(said: &str, mark: i64) -> bool {
    let limit = said.split(&format!("limited: {MARK}=")).nth(1);
    let digits =
        limit.map(|limit| limit.split(|other: char| !other.is_ascii_digit()).next().unwrap_or_default());
    digits.and_then(|digits| digits.parse::<i64>().ok()).is_some_and(|limit| limit >= mark)
}

fn probe(mark: i64) -> Result<Bytes, Arc<str>> {
    let probe = HeadroomProbe::new(names::PROBE_NAME, HeadroomProbeSpec { mark });
    serde_json::to_vec(&probe).map(Bytes::from).map_err(|error| error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mark_counts_as_not_heeded_while_no_other_answer_comes_between() {
        let pass = || tokio::time::advance(UNHEEDED / 2 + Duration::from_millis(1));
        let mut unheeded = Unheeded::default();
        assert!(!unheeded.lasts(true));
        pass().await;
        assert!(!unheeded.lasts(true) && !unheeded.lasts(false), "the count begins anew");
        pass().await;
        assert!(!unheeded.lasts(true));
        pass().await;
        assert!(!unheeded.lasts(true));
        pass().await;
        assert!(unheeded.lasts(true));
    }

    #[test]
    fn quota_admission_tells_which_mark_it_knows() {
        let said = |limit: &str| {
            format!(
                "headroomprobes.quota.sluice.dev \"probe\" is forbidden: exceeded quota: a, requested: {MARK}=1, \
                 used: {MARK}={limit}, limited: {MARK}={limit}"
            )
        };
        assert!(is_limited_by(&said("1795350631391"), 1_795_350_631_391));
        assert!(is_limited_by(&said("1795350631392"), 1_795_350_631_391), "the other quota's");
        assert!(!is_limited_by(&said("1795350621391"), 1_795_350_631_391), "of a session before");
        assert!(!is_limited_by(&said("0"), 1_795_350_631_391) && !is_limited_by("no such thing", 1));
    }
}
