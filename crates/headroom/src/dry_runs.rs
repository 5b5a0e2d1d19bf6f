//! Dry runs: what tells whether a lock is in force, a queue drained, a raise known.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use kube::Client;
use sluice_api::MigrationWindow;
use sluice_engine::headroom::MARK;
use sluice_kube_ext::raw::{Call, JSON, Reply, send};
use tokio::time::{Instant, sleep};

use crate::requests::{DEADLINE, Opened, Requests, left, windows};
use crate::servers::Peer;

/// The first pause between two probes; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// What quota admission says of a limit without usage; the quota's name follows.
const UNKNOWN: &str = "status unknown for quota: ";

/// What a drain has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drained {
    /// No API server knows of an earlier raise.
    Clean,
    /// One of them does: a mark that it shows says nothing of the next raise.
    BehindMark,
}

impl Requests {
    /// Has every API server deny a probe because of this window. Returns how long the lock holds from now on.
    ///
    /// # Errors
    /// When one of them did not deny it in `time`. The text names it and its last answer.
    pub async fn prove(
        &self,
        window: &Opened,
        probe: &MigrationWindow,
        time: Duration,
    ) -> Result<Duration, Arc<str>> {
        let body = body_of(probe)?;
        let (end, peers) = (Instant::now() + time, self.servers.each());
        let mark = format!("(window {})", window.nonce);
        let is_denied = |reply: &Reply| reply.code == 403 && reply.status().message.contains(&mark);
        let (body, is_denied) = (&body, &is_denied);
        let proofs = peers.iter().map(|peer| async move {
            self.until(peer, &window.namespace, body, end, is_denied).await.map_err(|(said, _)| (peer, said))
        });
        let denials = try_join_all(proofs).await.map_err(|(peer, said)| -> Arc<str> {
            format!("API server {} does not enforce the window: {said}", peer.name).into()
        })?;
        let left = denials.iter().map(|denial| left(window.until, denial.date)).min();
        Ok(left.unwrap_or_default())
    }

    /// Goes through the queue of quota admission at every API server: requests that were in it before are done then. And
    /// waits until none has the mark of an earlier raise any more.
    ///
    /// # Errors
    /// When one of them did not let it through in `time`.
    pub async fn drain(
        &self,
        window: &Opened,
        drain: &MigrationWindow,
        time: Duration,
    ) -> Result<Drained, Arc<str>> {
        let body = body_of(drain)?;
        let (end, peers) = (Instant::now() + time, self.servers.each());
        let drains = peers.iter().map(|peer| self.drain_at(peer, window, &body, end));
        let all = try_join_all(drains).await?;
        Ok(all.into_iter().max().unwrap_or(Drained::Clean))
    }

    async fn drain_at(
        &self,
        peer: &Peer,
        window: &Opened,
        body: &Bytes,
        end: Instant,
    ) -> Result<Drained, Arc<str>> {
        let is_through = |reply: &Reply| reply.is_success() || is_of_quota_admission(reply);
        let is_clean = |reply: &Reply| is_through(reply) && !is_of_mark(&reply.status().message);
        match self.until(peer, &window.namespace, body, end, is_clean).await {
            Ok(_) => Ok(Drained::Clean),
            Err((_, Some(last))) if is_through(&last) => Ok(Drained::BehindMark),
            Err((said, _)) => Err(format!("API server {}: {said}", peer.name).into()),
        }
    }

    /// Has quota admission of every API server refuse a window because of the mark of this quota.
    ///
    /// # Errors
    /// When one of them did not until `end`. The text names it and its last answer.
    pub async fn see_mark(
        &self,
        namespace: &str,
        drain: &MigrationWindow,
        quota: &str,
        end: Instant,
    ) -> Result<(), Arc<str>> {
        let (body, peers) = (body_of(drain)?, self.servers.each());
        let named = format!("{UNKNOWN}{quota},");
        let is_seen = |reply: &Reply| {
            let message = reply.status().message;
            reply.code == 403 && is_of_mark(&message) && message.contains(&named)
        };
        let (body, is_seen) = (&body, &is_seen);
        let views = peers.iter().map(|peer| async move {
            self.until(peer, namespace, body, end, is_seen).await.map_err(|(said, _)| (peer, said))
        });
        try_join_all(views).await.map(drop).map_err(|(peer, said)| {
            format!("quota admission of API server {} does not know of the raise: {said}", peer.name).into()
        })
    }

    /// Asks an API server to create something, as a dry run, until it answers as expected. Otherwise its last answer, as a
    /// text and as it was.
    async fn until(
        &self,
        peer: &Peer,
        namespace: &str,
        body: &Bytes,
        end: Instant,
        is_expected: impl Fn(&Reply) -> bool,
    ) -> Result<Reply, (String, Option<Reply>)> {
        let mut pause = FIRST_PAUSE;
        loop {
            let (said, last) = match self.try_create(&peer.client, namespace, body, end).await {
                Ok(reply) if is_expected(&reply) => return Ok(reply),
                Ok(reply) if reply.is_success() => ("it was let in".to_owned(), Some(reply)),
                Ok(reply) => (reply.status().message, Some(reply)),
                Err(error) => (error.to_string(), None),
            };
            if Instant::now() + pause >= end {
                return Err((said, last));
            }
            // A watch has to reach the API server's own cache first; nothing announces that it did.
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_create(
        &self,
        client: &Client,
        namespace: &str,
        body: &Bytes,
        end: Instant,
    ) -> kube::Result<Reply> {
        let path = format!("{}?dryRun=All", windows(namespace));
        let call = Call { method: Method::POST, path, body: Some((JSON, body.to_vec())) };
        let reply = send(client, call, end.saturating_duration_since(Instant::now()).min(DEADLINE)).await?;
        self.clock.observe(reply.date);
        Ok(reply)
    }
}

/// Whether this refusal is because of the mark of a raise. One by a limit that somebody has set says that it is exceeded.
pub(crate) fn is_of_mark(message: &str) -> bool {
    message.contains(UNKNOWN) && message.contains(MARK)
}

/// Refused by a quota on windows, or by the mark of a raise that was left: judged by quota admission all the same.
fn is_of_quota_admission(reply: &Reply) -> bool {
    let refusals = ["exceeded quota: ", UNKNOWN];
    reply.code == 403 && refusals.iter().any(|start| reply.status().message.contains(start))
}

fn body_of(window: &MigrationWindow) -> Result<Bytes, Arc<str>> {
    serde_json::to_vec(window).map(Bytes::from).map_err(|error| error.to_string().into())
}
