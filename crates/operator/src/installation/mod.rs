//! What the operator makes of the installation and keeps: controller and webhook, and what belongs to them. And what is said
//! of all of it in the status of `AAQ` and `MTQ`.
//!
//! Runs on the operator's leader only. The controller says in the condition `Gating` of the `AAQ` whether pods are gated;
//! the operator alone writes `Available`, `Progressing`, `Degraded`, `FieldsNotInForce`, the phase and the versions.
//!
//! Which `AAQ` there is, and whether it installs, is decided in [`existence`].
//!
//! No manifest contains these objects. The operator renders them from the options of the installation and what the `AAQ`
//! asks, and applies them by server-side apply: what it owns is put back, labels and annotations of others stay.

mod act;
mod apply;
mod asked;
mod comparison;
mod contest;
mod evaluators;
mod existence;
mod existence_loop;
mod finalizer;
mod in_force;
mod kind;
mod left_out;
mod live;
mod named;
mod observe;
mod operands;
mod phase_events;
mod pods;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use sluice_manifests::InstallOptions;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::events::Recorder;
use sluice_runtime::retry::{Failure, classify};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificates::LoopError;
use crate::pace::Pace;
use crate::presence::{Presence, Removal};
use crate::troubles::AdmissionTroubles;
use crate::version::Version;
pub use asked::{Asked, follow_asked};

use apply::{Target, Write};
use contest::Contests;
use kind::{Kind, Operand};
use left_out::{LeftOut, is_refusal};
use observe::{Sources, World};
use state::Troubles;

/// So long a watch gets to show what was written. What it never shows is written again: another client may have deleted the
/// object before.
const UNSEEN: Duration = Duration::from_secs(30);

/// What the loop works on.
#[derive(Clone, Debug)]
pub struct InstallationSettings {
    /// What the operands are rendered from.
    pub options: InstallOptions,
    /// The version that is said in the status.
    pub reported_version: String,
}

/// What the loop and others tell each other.
pub struct Told {
    /// What is wrong with admission objects.
    pub admission: watch::Receiver<AdmissionTroubles>,
    /// How far the removal is that an `AAQ` waits for.
    pub removal: watch::Receiver<Removal>,
    /// Whether anything is to be installed.
    pub presence: watch::Sender<Presence>,
    /// Takes events.
    pub events: Recorder,
}

impl InstallationSettings {
    /// With these `options`; the version said is `reported`, or else that of this program.
    #[must_use]
    pub fn new(options: InstallOptions, reported: Option<&str>) -> Self {
        let reported = reported.filter(|version| !version.is_empty()).unwrap_or(env!("CARGO_PKG_VERSION"));
        Self { options, reported_version: reported.to_owned() }
    }

    const fn version(&self) -> Version<'static> {
        Version::of(&self.options)
    }
}

/// Keeps the `AAQ`, operands and status until `shutdown`. Start it once the lease is held; `may_write` is asked before each
/// write.
///
/// # Errors
/// When something has to be written and `may_write` says no.
pub async fn run(
    (client, clock): (Client, Arc<ServerClock>),
    settings: InstallationSettings,
    told: Told,
    may_write: impl Fn() -> bool,
    shutdown: CancellationToken,
) -> Result<(), LoopError> {
    let InstallOptions { naming, installation: mode, .. } = settings.options;
    let (seen, world) = watch::channel(World { naming, mode, ..World::default() });
    let sources = Sources::new(client.clone(), &settings.options.namespace, told.admission, seen);
    let existence =
        existence_loop::keep((&client, &clock), world.clone(), (&told.presence, &told.events), &may_write);
    let writer = Writer::new(client.clone(), settings, told.events.clone());
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
    /// By target, on what the last write rested, and when that was.
    rested_on: BTreeMap<Target, (String, Instant)>,
    /// By operand, why the API server did not take the last write.
    refused: BTreeMap<Target, String>,
    /// Containers of `Evaluator`s that it does not take.
    left_out: LeftOut,
    contests: Contests,
    pace: Pace<Target>,
    backoff: Backoff,
}

impl Writer {
    fn new(client: Client, settings: InstallationSettings, events: Recorder) -> Self {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
        let (rested_on, refused) = (BTreeMap::new(), BTreeMap::new());
        let (contests, pace, left_out) = (Contests::default(), Pace::default(), LeftOut::default());
        Self { client, settings, events, rested_on, refused, left_out, contests, pace, backoff }
    }

    /// None where no `AAQ` installs. Those that are there are removed by another loop then, and what is made after that is
    /// made for the first time.
    fn plan_operands(&mut self, world: &World) -> operands::Plan {
        if world.presence().is_to_go() {
            self.rested_on
                .retain(|target, _| !matches!(target, Target::Operand(_) | Target::Needless { .. }));
            self.contests.clear();
        }
        self.contests.keep(&self.pace, Instant::now());
        for report in self.contests.of_admission(&self.settings.options.namespace, &world.admission.contested)
        {
            self.events.report(report);
        }
        self.plan_without(world, &self.left_out)
    }

    fn plan_without(&self, world: &World, left_out: &LeftOut) -> operands::Plan {
        operands::plan(world, &self.settings.options, self.settings.version(), left_out)
    }

    /// Writes what has to be written now. Returns when to look again although nothing was seen to change.
    async fn round(
        &mut self,
        world: &World,
        may_write: &impl Fn() -> bool,
    ) -> Result<Option<Instant>, LoopError> {
        self.try_left_out_again(world).await;
        let plan = self.plan_operands(world);
        let targets: BTreeSet<_> = plan.writes.iter().map(|write| write.target.clone()).collect();
        self.refused.retain(|target, _| targets.contains(target));
        let mut again = self.write_all(world, plan.writes, may_write).await?;
        let troubles = Troubles {
            too_old: world.too_old.values().cloned().collect(),
            withheld: plan.withheld.into_iter().chain(world.admission.withheld.clone()).collect(),
            left: plan.left.into_iter().chain(world.admission.left.clone()).collect(),
            refused: self
                .refused
                .iter()
                .map(|(target, why)| format!("{target} could not be written: {why}"))
                .collect(),
            contested: self.contests.told().into_iter().chain(world.admission.contested.clone()).collect(),
            // As it is after the writes, which may have shown what is to be left out.
            evaluators: operands::asked(world, &self.left_out).map(|(_, told)| told).unwrap_or_default(),
        };
        let statuses = status::plan(world, &troubles, &self.settings, Timestamp::now());
        again = again.into_iter().chain(self.write_all(world, statuses, may_write).await?).min();
        let over = self.contests.over(&self.pace, Instant::now()).into_iter().chain(self.left_out.over());
        Ok(again.into_iter().chain(over).min())
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
            if let Some(due) = unseen_until(self.rested_on.get(&write.target), &write, Instant::now()) {
                again = again.into_iter().chain([due]).min();
                continue;
            }
            if let Some(due) = self.pace.held(&write.target, Instant::now()) {
                again = again.into_iter().chain([due]).min();
                continue;
            }
            if !may_write() {
                return Err(LoopError::NotLeading { what: "the installation" });
            }
            self.pace.wrote(&write.target, write.limits(), Instant::now());
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
        let namespace = self.settings.options.namespace.as_str();
        self.contests.wrote(&write);
        if write.contested.is_some()
            && let Some(report) = self.contests.event(namespace, &write.target)
        {
            tracing::warn!(object = %write.target, note = %report.note, "another client insists on an object");
            self.events.report(report);
        }
        let error = apply::apply(&self.client, namespace, &write).await.err();
        match error.as_ref().map(classify) {
            None => {
                tracing::info!(object = %write.target, contested = write.contested, "installation put right");
                // Each write has a precondition, so no other process tells of the same change.
                if let Some(event) = phase_events::of(world, &write) {
                    self.events.report(event);
                }
                self.backoff.reset();
            }
            // The watch tells of what is there now.
            Some(Failure::Conflict | Failure::NotFound) => {}
            Some(failure) => {
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                if is_refusal(&failure) && self.leaves_out(world, &write.target, &error).await {
                    return false;
                }
                tracing::warn!(object = %write.target, %error, "installation not put right; trying again");
                if matches!(write.target, Target::Operand(_)) {
                    self.refused.insert(write.target, error);
                }
                return false;
            }
        }
        self.refused.remove(&write.target);
        self.rested_on.insert(write.target, (write.rests_on, Instant::now()));
        true
    }
}

impl Writer {
    /// Whether containers of `Evaluator`s are why the API server refuses what was planned for `target`: without them it
    /// would take it. Those with each of which it does not are left out from then on.
    async fn leaves_out(&mut self, world: &World, target: &Target, error: &str) -> bool {
        if *target != of_controller(world) {
            return false;
        }
        let asked = operands::asked(world, &self.left_out).map(|(asked, _)| asked.of_evaluators);
        let mut running: Vec<_> = asked.into_iter().flatten().filter(|it| it.runs).collect();
        // A younger one puts no elder one out.
        let created = |name: &str| Some(world.evaluators.named.as_ref()?.get(name)?.created);
        running.sort_by_key(|it| created(it.name()));
        let containers: Vec<_> = running.into_iter().map(|it| it.container).collect();
        let now = Instant::now();
        let mut without = containers.iter().fold(self.left_out.clone(), |all, it| all.with(it, error, now));
        if containers.is_empty() || self.try_without(world, &without).await != Some(Ok(())) {
            return false;
        }
        for container in &containers {
            let fewer = without.but(container);
            without = match self.try_without(world, &fewer).await {
                Some(Ok(())) => fewer,
                Some(Err(why)) => fewer.with(container, &why, now),
                // No container is left out because a request had no answer.
                None => return false,
            };
        }
        tracing::warn!(%error, "containers of Evaluators are left out");
        self.left_out = without;
        true
    }

    /// Tries again what was left out long ago. It is left out, and told, until the API server takes it.
    async fn try_left_out_again(&mut self, world: &World) {
        for container in self.left_out.due(Instant::now()) {
            let fewer = self.left_out.but(&container);
            let before = self.left_out.why(&container).unwrap_or_default();
            // While others may not run either, nothing is learnt.
            let asked = operands::asked(world, &fewer).map(|(asked, _)| asked.of_evaluators);
            let would_run = asked.into_iter().flatten().any(|it| it.runs && it.container == container);
            let tried = if would_run { self.try_without(world, &fewer).await } else { None };
            self.left_out = match tried {
                Some(Ok(())) => fewer,
                Some(Err(why)) => fewer.with(&container, &why, Instant::now()),
                None => fewer.with(&container, before, Instant::now()),
            };
        }
    }

    /// Whether the API server would take the controller's Deployment without these, or why not. `None`: it does not say.
    async fn try_without(&self, world: &World, left_out: &LeftOut) -> Option<Result<(), String>> {
        let writes = self.plan_without(world, left_out).writes;
        match writes.iter().find(|write| write.target == of_controller(world)) {
            Some(write) => apply::try_out(&self.client, &self.settings.options.namespace, write).await,
            // It is as it would be.
            None => Some(Ok(())),
        }
    }
}

/// The Deployment in which containers of `Evaluator`s run.
fn of_controller(world: &World) -> Target {
    let [controller, _] = world.deployment_names();
    Target::Operand(Operand::new(Kind::Deployment, controller))
}

/// Until when `write` is left out because the `last` one of its target rested on the same and may not be seen yet; `None` if
/// it is to be sent.
fn unseen_until(last: Option<&(String, Instant)>, write: &Write, now: Instant) -> Option<Instant> {
    let (_, since) = last.filter(|(rested_on, _)| *rested_on == write.rests_on)?;
    let due = *since + UNSEEN;
    (now < due).then_some(due)
}
