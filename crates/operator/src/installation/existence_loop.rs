//! Keeps the `AAQ` and its finalizer as [`super::existence`] says, and tells the other loops whether anything is installed.

use std::time::Duration;

use kube::Client;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::retry::{Failure, classify};
use tokio::sync::watch;
use tokio::time::Instant;

use super::act::{Act, send};
use super::existence::{Absence, plan};
use super::observe::World;
use crate::certificates::LoopError;
use crate::presence::Presence;

/// After writes, so that another writer of the same fields is not answered at its own speed.
const PAUSE: Duration = Duration::from_secs(1);

/// Until nothing is seen any more. `may_write` is asked before each write.
pub(super) async fn keep(
    client: &Client,
    mut seen: watch::Receiver<World>,
    told: &watch::Sender<Presence>,
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
    let mut absence = Absence::default();
    loop {
        let world = seen.borrow_and_update().clone();
        tell(told, world.presence());
        let now = Instant::now();
        let due = absence.look(&world, now);
        let acts = plan(&world, due.is_some_and(|due| due <= now));
        let mut again = due.filter(|due| *due > now);
        let (has_acts, mut failed) = (!acts.is_empty(), false);
        for act in acts {
            if !may_write() {
                return Err(LoopError::NotLeading { what: "the AAQ" });
            }
            failed |= !carry_out(client, &act).await;
        }
        if failed {
            again = Some(Instant::now() + backoff.failed());
        } else if has_acts {
            backoff.reset();
            tokio::time::sleep(PAUSE).await;
        }
        let timer = async {
            match again {
                Some(due) => tokio::time::sleep_until(due).await,
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

fn tell(told: &watch::Sender<Presence>, presence: Presence) {
    let is_news = told.send_if_modified(|before| {
        let is_news = *before != presence;
        before.clone_from(&presence);
        is_news
    });
    if is_news {
        tracing::info!(?presence, "whether anything is installed");
    }
}

/// Whether nothing is left to do before the watch tells of a change.
async fn carry_out(client: &Client, act: &Act) -> bool {
    let Err(error) = send(client, act).await else {
        tracing::info!(?act, "AAQ put right");
        return true;
    };
    match classify(&error) {
        // The watch tells of what is there now.
        Failure::Conflict | Failure::NotFound | Failure::AlreadyExists => true,
        _ => {
            tracing::warn!(?act, %error, "AAQ not put right; trying again");
            false
        }
    }
}
