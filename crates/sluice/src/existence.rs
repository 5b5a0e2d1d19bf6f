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

use crate::progress::to_log;
use crate::uninstall::{self, Report, observe_made};

/// What is made while it is removed is seen after this time: the loops that make it stop at their next write.
const SETTLED: Duration = Duration::from_secs(2);

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
    told: watch::Sender<Removal>,
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
            told,
        })
    }

    /// Follows `presence` until `cancel`. Start it once the lease is held; `may_write` is asked before each step.
    pub async fn run(
        self,
        mut presence: watch::Receiver<Presence>,
        may_write: impl Fn() -> bool,
        cancel: CancellationToken,
    ) -> Result<(), Infallible> {
        let following = async {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15), process_seed());
            loop {
                let why = presence.borrow_and_update().clone();
                let again = match self.remove(&why, &may_write, &presence).await {
                    Ok(()) => None,
                    Err(Stopped::Outdated) => Some(Duration::ZERO),
                    Err(error) => {
                        tracing::warn!(%error, "what was installed not removed; trying again");
                        self.tell(&why, Some(error.to_string()));
                        Some(backoff.failed())
                    }
                };
                if again.is_none() {
                    backoff.reset();
                }
                let timer = async {
                    match again {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => std::future::pending().await,
                    }
                };
                let gone = tokio::select! {
                    changed = presence.changed() => changed.is_err(),
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

    /// Until nothing is left.
    async fn remove(
        &self,
        why: &Presence,
        may_write: &impl Fn() -> bool,
        presence: &watch::Receiver<Presence>,
    ) -> Result<(), Stopped> {
        if !why.is_to_go() {
            return Ok(());
        }
        let (client, quota_controller) = (self.client.clone(), self.as_quota_controller.clone());
        let mut removal = uninstall::Removal::new(client, quota_controller, self.namespace.clone(), to_log);
        let mut report = Report::new(&self.namespace, false);
        let (mut was_over, mut before) = (false, Vec::new());
        loop {
            let seen = observe_made(&self.client, &self.namespace).await?;
            if let Some(object) = seen.blocking().next() {
                let what = anyhow::anyhow!("{object} has not Sluice's label: label it, or remove it");
                return Err(Stopped::Failed(what));
            }
            let steps = plan(&seen, &WISH);
            let is_over = is_over(&steps, &before);
            if is_over && was_over {
                tracing::info!(left = left(&seen, &steps), "what was installed is removed");
                self.tell(why, None);
                return Ok(());
            }
            was_over = is_over;
            if is_over {
                tokio::time::sleep(SETTLED).await;
                continue;
            }
            let left = left(&seen, &steps);
            self.tell(why, Some(left.clone()));
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
                removal.carry_out(step, &mut report).await?;
            }
            before = steps;
        }
    }

    fn tell(&self, of: &Presence, left: Option<String>) {
        self.told.send_replace(Removal { of: of.clone(), left });
    }
}

/// Whether nothing is left to do. Who may create pods may create them behind the gate, and Kubernetes itself puts back a
/// quota that refuses to be restored: what is left of these after all of it was done keeps no `AAQ` from going.
fn is_over(steps: &[Step], before: &[Step]) -> bool {
    let is_of_others = |step: &Step| matches!(step, Step::Release | Step::Restore);
    steps.is_empty() || (steps == before && steps.iter().all(is_of_others))
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
