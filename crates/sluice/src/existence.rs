//! `--installation`, and the removal of what the operator has made where the `AAQ` installs.
//!
//! The removal is that of `sluice uninstall`, of less: what gates goes first, then what waits is let go, raises end, and
//! last go the workloads. The operator stays, with its accounts and certificates, and installs again once there is an `AAQ`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use kube::Client;
use sluice_manifests::Installation;
use sluice_manifests::uninstall::{Seen, Step, Wish, plan};
use sluice_operator::presence::{Presence, Removal};
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::{ClientOptions, connect};
use sluice_runtime::clock::ServerClock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::progress::{Say, to_log};
use crate::uninstall::{self, GoesOn, Report, observe_made};

/// What is made while it is removed is seen after this time: the loops that make it stop at their next write.
const SETTLED: Duration = Duration::from_secs(2);

/// After the first pause and after the longest, pods that could not be released are tried again where there is no `AAQ`.
const OF_OTHERS: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(300));

/// What the operator has made, and nothing else.
const WISH: Wish = Wish { keep_objects: false, keep_operator: true, quotas: false, definitions: false };

/// What installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The operator: pods are gated as long as it is there. If there is no AAQ it makes one, and takes it back when
    /// somebody else makes one
    Always,
    /// The AAQ: without one there is nothing but the operator, and what it has made goes with the AAQ
    Cr,
}

impl From<By> for Installation {
    fn from(by: By) -> Self {
        match by {
            By::Always => Self::Always,
            By::Cr => Self::Cr,
        }
    }
}

/// Why a removal is not carried out now.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    /// Another `AAQ` came, or this one was not the last.
    #[error("there is another reason by now")]
    Outdated,
    #[error("may not remove what was installed: the lease is not held")]
    NotLeading,
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// Removes what is to go.
pub struct Remover {
    client: Client,
    as_quota_controller: (Client, Arc<ServerClock>),
    namespace: String,
    telling: Telling,
}

impl Remover {
    /// Of the installation in `namespace`. `told` gets how far it is.
    ///
    /// # Errors
    /// When no client can be made.
    pub async fn new(
        options: ClientOptions,
        namespace: &str,
        told: watch::Sender<Removal>,
    ) -> anyhow::Result<Self> {
        let clock = Arc::new(ServerClock::default());
        let options = ClientOptions { clock: Some(Arc::clone(&clock)), ..options };
        let impersonate = Some(sluice_api::names::quota_controller_username());
        let client = connect(&options).await?;
        let impersonating = connect(&ClientOptions { impersonate, ..options }).await?;
        Ok(Self {
            client,
            as_quota_controller: (impersonating, clock),
            namespace: namespace.to_owned(),
            telling: Telling { told, seen: None, stuck_at: None },
        })
    }

    /// Follows `presence` until `cancel`. Start it once the lease is held; `may_write` is asked before each step.
    pub async fn run(
        mut self,
        mut presence: watch::Receiver<Presence>,
        may_write: impl Fn() -> bool + Sync,
        cancel: CancellationToken,
    ) -> Result<(), Infallible> {
        let following = async {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15), process_seed());
            let mut of_others = Backoff::new(OF_OTHERS.0, OF_OTHERS.1, process_seed());
            loop {
                let why = presence.borrow_and_update().clone();
                let again = match self.remove(&why, &may_write, &presence).await {
                    Ok(is_anything_held) => {
                        backoff.reset();
                        is_anything_held.then(|| of_others.failed())
                    }
                    Err(Stopped::Outdated) => Some(Duration::ZERO),
                    Err(error) => {
                        tracing::warn!(%error, "what was installed not removed; trying again");
                        self.telling.failed(&why, error.to_string());
                        Some(backoff.failed())
                    }
                };
                let timer = async {
                    match again {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => std::future::pending().await,
                    }
                };
                let gone = tokio::select! {
                    changed = presence.changed() => {
                        of_others.reset();
                        changed.is_err()
                    }
                    () = timer => false,
                };
                if gone {
                    return;
                }
            }
        };
        cancel.run_until_cancelled(following).await;
        Ok(())
    }

    /// Until nothing is left. Returns whether it is worth looking again although nothing happens.
    async fn remove(
        &mut self,
        why: &Presence,
        may_write: &(impl Fn() -> bool + Sync),
        presence: &watch::Receiver<Presence>,
    ) -> Result<bool, Stopped> {
        if !why.is_to_go() {
            return Ok(false);
        }
        let (client, quota_controller) = (self.client.clone(), self.as_quota_controller.clone());
        let goes_on = || !presence.has_changed().unwrap_or(true) && may_write();
        let with = (to_log as Say, &goes_on as GoesOn<'_>);
        let mut removal = uninstall::Removal::new(client, quota_controller, self.namespace.clone(), with);
        let mut report = Report::new(&self.namespace, false);
        let (mut was_over, mut before) = (false, Vec::new());
        loop {
            let seen = observe_made(&self.client, &self.as_quota_controller.1, &self.namespace).await?;
            if let Some(object) = seen.blocking().next() {
                let what = anyhow::anyhow!("{object} has not Sluice's label: label it, or remove it");
                return Err(Stopped::Failed(what));
            }
            let steps = plan(&seen, &WISH);
            let is_over = is_over(&steps, &before);
            if is_over && was_over {
                tracing::info!(left = left(&seen, &steps), "what was installed is removed");
                self.telling.done(why);
                return Ok(looks_again(why, &seen));
            }
            was_over = is_over;
            if is_over {
                tokio::time::sleep(SETTLED).await;
                continue;
            }
            let left = left(&seen, &steps);
            self.telling.left(why, &left);
            if steps == before {
                return Err(Stopped::Failed(anyhow::anyhow!("something makes again and again: {left}")));
            }
            for step in &steps {
                if presence.has_changed().unwrap_or(true) {
                    return Err(Stopped::Outdated);
                }
                if !may_write() {
                    return Err(Stopped::NotLeading);
                }
                let held_up = removal.carry_out(step, &mut report).await?;
                if !matches!(step, Step::Wait(_)) {
                    self.telling.began(why);
                }
                if let Some(why) = held_up {
                    return Err(Stopped::Failed(anyhow::anyhow!(why)));
                }
            }
            before = steps;
        }
    }
}

/// What is told of a removal: what is left, or why the last attempt has failed.
struct Telling {
    told: watch::Sender<Removal>,
    /// What was left when it was looked for last.
    seen: Option<String>,
    /// And when the last attempt failed: the next one does not tell the same again in place of why.
    stuck_at: Option<String>,
}

impl Telling {
    /// Something is left.
    fn left(&mut self, of: &Presence, left: &str) {
        self.seen = Some(left.to_owned());
        let is_stuck = self.stuck_at.as_deref() == Some(left) && self.told.borrow().of == *of;
        if !is_stuck {
            self.tell(of, Some(left.to_owned()));
        }
    }

    /// The attempt has failed.
    fn failed(&mut self, of: &Presence, why: String) {
        self.stuck_at = self.seen.take().or_else(|| self.stuck_at.take());
        self.tell(of, Some(why));
    }

    /// Nothing is left.
    fn done(&mut self, of: &Presence) {
        (self.seen, self.stuck_at) = (None, None);
        self.tell(of, None);
    }

    fn tell(&self, of: &Presence, left: Option<String>) {
        self.change(|before| {
            let has_begun = before.has_begun && before.of == *of;
            Removal { of: of.clone(), left, has_begun }
        });
    }

    /// A step is carried out.
    fn began(&self, of: &Presence) {
        self.change(|before| Removal { of: of.clone(), has_begun: true, ..before.clone() });
    }

    fn change(&self, to: impl FnOnce(&Removal) -> Removal) {
        self.told.send_if_modified(|told| {
            let before = std::mem::take(told);
            *told = to(&before);
            *told != before
        });
    }
}

/// Whether nothing is left to do. Who may create pods may create them behind the gate, and Kubernetes itself puts back a
/// quota that refuses to be restored: what is left of these after all of it was done keeps no `AAQ` from going.
fn is_over(steps: &[Step], before: &[Step]) -> bool {
    let is_of_others = |step: &Step| matches!(step, Step::Release | Step::Restore);
    steps.is_empty() || (steps == before && steps.iter().all(is_of_others))
}

/// Whether pods may wait, or quotas be raised, although all is removed: releases were refused, for long maybe, by a webhook
/// of others for example. With an `AAQ` that goes nobody else would look for them.
fn looks_again(why: &Presence, seen: &Seen) -> bool {
    *why == Presence::Absent && (seen.held > 0 || seen.raised > 0)
}

/// What is left, for people.
fn left(seen: &Seen, steps: &[Step]) -> String {
    let deleted = steps.iter().filter(|step| matches!(step, Step::Delete(..))).count();
    format!(
        "{deleted} objects, {} processes, {} pods behind the gate, {} raised quotas",
        seen.processes, seen.held, seen.raised
    )
}

#[cfg(test)]
mod tests {
    use sluice_manifests::uninstall::Wait;

    use super::*;

    #[test]
    fn pods_that_wait_still_are_looked_for_again_where_there_is_no_aaq() {
        let seen = |held, raised| Seen { held, raised, ..Seen::default() };
        let leaving = Presence::Leaving("uid".to_owned());
        assert!(looks_again(&Presence::Absent, &seen(1, 0)) && looks_again(&Presence::Absent, &seen(0, 1)));
        assert!(!looks_again(&Presence::Absent, &seen(0, 0)));
        assert!(!looks_again(&leaving, &seen(1, 1)), "it goes, and they are looked for without it");
    }

    #[test]
    fn a_removal_that_is_stuck_tells_why_once() {
        let (told, mut seen) = watch::channel(Removal::default());
        let mut telling = Telling { told, seen: None, stuck_at: None };
        let leaving = Presence::Leaving("uid".to_owned());
        let mut news = || {
            let is_news = seen.has_changed().unwrap();
            let now = seen.borrow_and_update().clone();
            is_news.then_some((now.left, now.has_begun))
        };
        let some = |text: &str, has_begun| Some((Some(text.to_owned()), has_begun));
        telling.left(&leaving, "two");
        assert_eq!(news(), some("two", false));
        telling.failed(&leaving, "refused".to_owned());
        assert_eq!(news(), some("refused", false));
        for _ in 0..3 {
            telling.left(&leaving, "two");
            assert_eq!(news(), None, "nothing is different");
            telling.failed(&leaving, "refused".to_owned());
            assert_eq!(news(), None);
        }
        telling.began(&leaving);
        assert_eq!(news(), some("refused", true));
        telling.left(&leaving, "one");
        assert_eq!(news(), some("one", true));
        telling.done(&leaving);
        assert_eq!(news(), Some((None, true)));
        telling.left(&Presence::Absent, "one");
        assert_eq!(news(), some("one", false), "another removal");
    }

    #[test]
    fn pods_that_others_hold_keep_no_aaq_from_going() {
        let (release, restore) = (Step::Release, Step::Restore);
        assert!(is_over(&[], &[]));
        assert!(!is_over(std::slice::from_ref(&release), &[]), "it was not tried");
        let both = [release, restore];
        assert!(is_over(&both, &both));
        assert!(!is_over(&both, &both[..1]));
        let more = [Step::Wait(Wait::Followed), Step::Release];
        assert!(!is_over(&more, &more), "something is made again");
    }
}
