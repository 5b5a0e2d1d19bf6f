//! Keeps the `AAQ` and its finalizer as [`super::existence`] says, and tells the other loops whether anything is installed.

use std::time::Duration;

use kube::Client;
use sluice_api::names;
use sluice_runtime::clock::ServerClock;
use sluice_runtime::events::Recorder;
use sluice_runtime::retry::{Failure, classify};
use tokio::sync::watch;
use tokio::time::Instant;

use super::act::{Act, send};
use super::existence::{Absence, Failures, is_withheld, plan};
use super::observe::World;
use super::{UNSEEN, finalizer};
use crate::certificates::LoopError;
use crate::presence::Presence;

/// After writes, so that another writer of the same fields is not answered at its own speed.
const PAUSE: Duration = Duration::from_secs(1);

/// Until nothing is seen any more. `may_write` is asked before each write.
pub(super) async fn keep(
    (client, clock): (&Client, &ServerClock),
    mut seen: watch::Receiver<World>,
    (told, events): (&watch::Sender<Presence>, &Recorder),
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError> {
    let mut failures = Failures::default();
    let (mut absence, mut was_withheld) = (Absence::default(), false);
    loop {
        let world = seen.borrow_and_update().clone();
        tell(told, world.presence());
        if is_withheld(&world) && !was_withheld {
            tracing::warn!(
                crd = names::AAQ_DEFINITION,
                "no AAQ made: another program keeps the CRD, and its operator may take any AAQ as an order: create one"
            );
        }
        was_withheld = is_withheld(&world);
        let (now, time) = (Instant::now(), clock.reckoned());
        let due = absence.look(&world, now);
        let acts = plan(&world, due.is_some_and(|due| due <= now), time);
        let later = finalizer::later(&world, time).map(|later| now + later);
        let mut again: Vec<Instant> = due.filter(|due| *due > now).into_iter().chain(later).collect();
        let mut is_sent = false;
        for act in acts {
            if let Some(due) = failures.held(&act, Instant::now()) {
                again.push(due);
                continue;
            }
            if !may_write() {
                return Err(LoopError::NotLeading { what: "the AAQ" });
            }
            if carry_out(client, &act).await {
                failures.done(&act);
                act.event().into_iter().for_each(|event| events.report(event));
                is_sent = true;
            } else {
                again.push(failures.failed(&act, Instant::now()));
            }
        }
        if is_sent {
            // What was not done, because the object was another one by then, is planned anew if no watch tells of that.
            again.push(Instant::now() + UNSEEN);
            tokio::time::sleep(PAUSE).await;
        }
        let timer = async {
            match again.into_iter().min() {
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

/// Whether it was not refused.
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
