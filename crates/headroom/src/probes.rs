//! Dry runs that tell what an API server knows and enforces.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::{HeadroomProbe, HeadroomProbeSpec, names};
use sluice_engine::headroom::MARK;
use sluice_runtime::api_servers::{ApiServer, Servers};
use sluice_runtime::backoff::Backoff;
use sluice_runtime::clock::ServerClock;
use sluice_runtime::request::{Reply, objects, send};
use tokio::time::{Instant, sleep, timeout};

use crate::requests::DEADLINE;

/// The first pause between two probes, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// So many probes follow the first one without a pause.
const AT_ONCE: u32 = 2;
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
    /// That of the installation.
    namespace: Box<str>,
}

impl Probes {
    /// Asks each of `servers`. `namespace` is that of the installation.
    #[must_use]
    pub fn new(servers: Arc<Servers>, clock: Arc<ServerClock>, namespace: &str) -> Self {
        Self { servers, clock, namespace: namespace.into() }
    }

    /// Asks each API server until it knows of this mark in a quota of the namespace, and until its quota admission has
    /// judged what came before. The admission policy denies a probe that names the mark; a probe that names none goes on to
    /// quota admission, which has one queue for each namespace and refuses it by the mark: `plain` says that this can be
    /// told, because one quota is marked and it has no scopes. Then that one answer tells both,
    /// and a target waits for one request less.
    ///
    /// # Errors
    /// When one of them did not in `time`, or another admission step denies probes.
    /// The error has its address and its last answer.
    pub async fn know(
        &self,
        namespace: &str,
        mark: i64,
        plain: bool,
        time: Duration,
    ) -> Result<(), (ApiServer, Arc<str>)> {
        let (end, servers) = (Instant::now() + time, self.servers.each());
        let limited = format!("limited: {MARK}={mark}");
        let limited = &limited;
        let asked = servers.into_iter().map(|server| async move {
            for _ in 0..self.servers.proofs() {
                let said = async {
                    if plain {
                        return self.until_denied(&server, namespace, NO_MARK, limited, end).await;
                    }
                    self.until_denied(&server, namespace, mark, names::PROBE_DENIED, end).await?;
                    self.until_denied(&server, namespace, NO_MARK, "", end).await
                };
                said.await.map_err(|said| (server.clone(), said))?;
            }
            Ok(())
        });
        try_join_all(asked).await.map(drop)
    }

    /// An empty `text` is content with any answer of quota admission.
    async fn until_denied(
        &self,
        server: &ApiServer,
        namespace: &str,
        mark: i64,
        text: &str,
        end: Instant,
    ) -> Result<(), Arc<str>> {
        let body = probe(mark)?;
        let mut backoff = Backoff::exact(PAUSE.0, PAUSE.1);
        loop {
            let time = end.saturating_duration_since(Instant::now()).min(DEADLINE);
            let said = match self.try_create(&server.client, namespace, &body, time).await {
                Ok(reply) if is_denial(&reply, text) || (text.is_empty() && reply.is_success()) => {
                    return Ok(());
                }
                Ok(reply) if reply.is_success() => "the mark is not known there".to_owned(),
                Ok(reply) => reply.status().message,
                Err(error) => error.to_string(),
            };
            if is_denied_by_another(&said) {
                return Err(format!("another admission step denies probes: {said}").into());
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

    /// Asks one API server whether both policies are in force, with the quota that is installed for this. Each of its two
    /// answers may take `patience`.
    pub async fn prove(&self, server: &ApiServer, patience: Duration) -> Proof {
        match self.try_prove(server, patience).await {
            Ok(()) => Proof::Given,
            Err(proof) => proof,
        }
    }

    /// The API servers that answer in `time` whether both policies are in force, by name.
    pub async fn prompt(&self, time: Duration) -> BTreeSet<Arc<str>> {
        let servers = self.servers.each();
        let asked = servers.iter().map(async |server| {
            let proof = timeout(time, self.prove(server, time)).await;
            (proof == Ok(Proof::Given)).then(|| Arc::clone(&server.name))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn try_prove(&self, server: &ApiServer, patience: Duration) -> Result<(), Proof> {
        let namespace = &*self.namespace;
        let body = probe(0).map_err(Proof::Missing)?;
        let reply = self.try_create(&server.client, namespace, &body, patience).await;
        expect(names::LOCK_POLICY, reply, names::PROBE_DENIED)?;
        let mark = json!({ MARK: FAR_AWAY.to_string() });
        let patch = Patch::Merge(json!({ "status": { "hard": mark, "used": mark } }));
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let quotas = objects::<ResourceQuota>(Some(namespace));
        let request = quotas.patch_subresource("status", names::PROOF_QUOTA, &dry_run, &patch);
        let reply = send(&server.client, request, patience).await;
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

/// Whether a webhook or a policy of another product denies the probe, as these say themselves
/// (`k8s.io/apiserver/pkg/admission/plugin`): it will again.
fn is_denied_by_another(said: &str) -> bool {
    let by_policy = said.contains("ValidatingAdmissionPolicy '") && !said.contains(names::LOCK_POLICY);
    by_policy || (said.contains("admission webhook \"") && said.contains("denied the request"))
}

fn probe(mark: i64) -> Result<Bytes, Arc<str>> {
    let probe = HeadroomProbe::new(names::PROBE_NAME, HeadroomProbeSpec { mark });
    serde_json::to_vec(&probe).map(Bytes::from).map_err(|error| error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_by_another_product_is_told_apart() {
        let kyverno =
            "admission webhook \"validate.kyverno.svc-fail\" denied the request: labels are missing";
        let policy = "headroomprobes.quota.sluice.dev \"probe\" is forbidden: ValidatingAdmissionPolicy 'team' with binding \
            'team' denied request: no";
        assert!(is_denied_by_another(kyverno) && is_denied_by_another(policy));
        let own = format!(
            "ValidatingAdmissionPolicy '{}' with binding 'x' denied request: wait",
            names::LOCK_POLICY
        );
        let quota = format!(
            "is forbidden: exceeded quota: a, requested: {MARK}=1, used: {MARK}=9, limited: {MARK}=9"
        );
        let starting = "User \"sluice\" cannot create resource \"headroomprobes\"";
        assert!(
            ![&own, &quota, starting, "the mark is not known there"]
                .iter()
                .any(|said| is_denied_by_another(said))
        );
    }
}
