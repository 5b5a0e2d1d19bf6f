//! Keeps two things in the webhook configurations right: the authorities that the API server trusts, and the
//! namespaces whose pods are gated, which the `AAQ` chooses.
//!
//! Runs on the leader only. The lists of webhooks are never emptied: while a webhook cannot be reached the API
//! server refuses what it would have to review (fail closed, design §7).

mod apply;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kube::Client;
use sluice_kube_ext::retry::{Backoff, process_seed};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::certificates::LoopError;
use observe::{Sources, World};

/// Keeps both configurations until `shutdown`. Start it once the lease is held; `may_write` is asked before each
/// write. `namespace` is where the authority's Secret is.
///
/// # Errors
/// When something has to be written and `may_write` says no.
pub async fn run(
    client: Client,
    namespace: &str,
    may_write: impl Fn() -> bool,
    shutdown: CancellationToken,
) -> Result<(), LoopError> {
    let (seen, world) = watch::channel(World::default());
    let sources = Sources::new(client.clone(), namespace, seen);
    tokio::select! {
        result = keep(&client, world, may_write) => result,
        () = sources.follow(shutdown) => Ok(()),
    }
}

async fn keep(
    client: &Client,
    mut seen: watch::Receiver<World>,
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
    loop {
        let world = seen.borrow_and_update().clone();
        let mut failed = false;
        for patch in plan::plan(&world) {
            if !may_write() {
                return Err(LoopError::NotLeading { what: "webhook configurations" });
            }
            failed |= !apply::apply(client, patch).await;
        }
        let retry = failed.then(|| backoff.failed());
        if retry.is_none() {
            backoff.reset();
        }
        let timer = async {
            match retry {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let gone = tokio::select! {
            changed = seen.changed() => changed.is_err(),
            () = timer => false,
        };
        if gone {
            return Ok(());
        }
    }
}
