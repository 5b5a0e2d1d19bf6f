//! What the `AAQ` asks of the installation's own Deployments, and what is said of the installation in the status of `AAQ`
//! and `MTQ`.
//!
//! Runs on the operator's leader only. The controller says in the condition `Gating` of the `AAQ` whether pods are gated;
//! the operator alone writes `Available`, `Progressing`, `Degraded`, `FieldsNotInForce`, the phase and the versions.
//!
//! Which `AAQ` there is, and whether it installs, is decided in [`existence`].
//!
//! The Deployments come from a manifest or a chart. By server-side apply the operator owns of them only what the `AAQ`
//! states; what it states no more gets the value of the operator's own Deployment, which comes from the same manifest and is
//! never written.

mod act;
mod apply;
mod asked;
mod existence;
mod existence_loop;
mod fields;
mod finalizer;
mod in_force;
mod observe;
mod operands;
mod pace;
mod phase_events;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use sluice_operator::Installation;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::events::Recorder;
use sluice_runtime::retry::{Failure, classify};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificates::LoopError;
use crate::presence::{Presence, Removal};
pub use asked::{Asked, follow_asked};

use apply::{Target, Write};
use observe::{Sources, World};
use pace::Pace;

/// Of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the loop works on.
#[derive(Clone, Debug)]
pub struct InstallationSettings {
    /// Namespace of the Deployments.
    pub namespace: String,
    /// The version that is said in the status.
    pub reported_version: String,
    /// What installs.
    pub installation: Installation,
}

/// What the loop and others tell each other.
pub struct Told {
    /// Why admission objects that are missing are not created.
    pub withheld: watch::Receiver<Option<String>>,
    /// How far the removal is that an `AAQ` waits for.
    pub removal: watch::Receiver<Removal>,
    /// Whether anything is to be installed.
    pub presence: watch::Sender<Presence>,
    /// Takes events.
    pub events: Recorder,
}

impl InstallationSettings {
    /// In `namespace`; the version said is `reported`, or else that of this program.
    #[must_use]
    pub fn new(namespace: &str, reported: Option<&str>, installation: Installation) -> Self {
        let reported = reported.filter(|version| !version.is_empty()).unwrap_or(VERSION);
        Self { namespace: namespace.to_owned(), reported_version: reported.to_owned(), installation }
    }
}

/// Keeps the `AAQ`, Deployments and status until `shutdown`. Start it once the lease is held; `may_write` is asked before
/// each write.
///
/// # Errors When something has to be written and `may_write` says no.
pub async fn run(
    client: Client,
    settings: InstallationSettings,
    told: Told,
    may_write: impl Fn() -> bool,
    shutdown: CancellationToken,
) -> Result<(), LoopError> {
    let (seen, world) = watch::channel(World { mode: settings.installation, ..World::default() });
    let sources = Sources::new(client.clone(), &settings.namespace, told.withheld, seen);
    let existence = existence_loop::keep(&client, world.clone(), &told.presence, &may_write);
    let writer = Writer::new(client.clone(), settings, told.events);
    tokio::select! {
        result = keep(writer, world, &may_write) => result,
        result = existence => result,
        () = sources.follow(&told.removal, shutdown) => Ok(()),
    }
}

async fn keep(
    mut writer: Writer,
    mut seen: watch::Receiver<World>,
    may_write: &impl Fn() -> bool,
) -> Result<(), LoopError> {
    loop {
        let world = seen.borrow_and_update().clone();
        let again = writer.round(&world, may_write).await?;
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

/// What was written, and how it went.
struct Writer {
    client: Client,
    settings: InstallationSettings,
    events: Recorder,
    /// By target, the version of the object on which the last write rested.
    rested_on: BTreeMap<Target, String>,
    /// By Deployment, why the API server did not take the last write.
    refused: BTreeMap<&'static str, String>,
    pace: Pace,
    backoff: Backoff,
}

impl Writer {
    fn new(client: Client, settings: InstallationSettings, events: Recorder) -> Self {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
        let (rested_on, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { client, settings, events, rested_on, refused, pace: Pace::default(), backoff }
    }

    /// Writes what has to be written now. Returns when to look again although nothing was seen to change.
    async fn round(
        &mut self,
        world: &World,
        may_write: &impl Fn() -> bool,
    ) -> Result<Option<Instant>, LoopError> {
        let is_installed = world.presence().is_installed();
        let operands = if is_installed { operands::plan(world, VERSION) } else { Vec::new() };
        let is_wanted = |name| operands.iter().any(|write| write.target == Target::Deployment(name));
        self.refused.retain(|name, _| is_wanted(*name));
        let mut again = self.write_all(world, operands, may_write).await?;
        let reported = &self.settings.reported_version;
        let statuses = status::plan(world, &self.refused, reported, Timestamp::now());
        again = again.into_iter().chain(self.write_all(world, statuses, may_write).await?).min();
        Ok(again)
    }

    async fn write_all(
        &mut self,
        world: &World,
        writes: Vec<Write>,
        may_write: &impl Fn() -> bool,
    ) -> Result<Option<Instant>, LoopError> {
        let (mut again, mut failed) = (None, false);
        for write in writes {
            // What was written is not seen yet.
            if self.rested_on.get(&write.target) == Some(&write.resource_version) {
                continue;
            }
            if let Some(due) = self.pace.held(&write.target, Instant::now()) {
                again = again.into_iter().chain([due]).min();
                continue;
            }
            if !may_write() {
                return Err(LoopError::NotLeading { what: "the installation" });
            }
            self.pace.wrote(&write.target, Instant::now());
            failed |= !self.write(world, write).await;
        }
        if failed {
            let retry = Instant::now() + self.backoff.failed();
            again = again.into_iter().chain([retry]).min();
        }
        Ok(again)
    }

    /// Whether nothing is left to do before the watch tells of a change.
    async fn write(&mut self, world: &World, write: Write) -> bool {
        let error = apply::apply(&self.client, &self.settings.namespace, &write).await.err();
        match error.as_ref().map(classify) {
            None => {
                tracing::info!(object = %write.target, "installation put right");
                // Each write has a precondition, so no other process tells of the same change.
                if let Some(event) = phase_events::of(world, &write) {
                    self.events.report(event);
                }
                self.backoff.reset();
            }
            // The watch tells of what is there now.
            Some(Failure::Conflict | Failure::NotFound) => {}
            Some(_) => {
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                tracing::warn!(object = %write.target, %error, "installation not put right; trying again");
                if let Target::Deployment(name) = write.target {
                    self.refused.insert(name, error);
                }
                return false;
            }
        }
        self.rested_on.insert(write.target, write.resource_version);
        true
    }
}
