//! Keeps our admission objects as they are shipped: the entries of the two webhook configurations with the authorities
//! that the API server trusts and the namespaces whose pods are gated, which the `AAQ` chooses; the admission policies,
//! those that gate with the same namespaces and without the targets of migrations where VMs are charged for their guests,
//! and their bindings. What is deleted or edited is put back, as long
//! as the namespace of the installation exists.
//!
//! Runs on the leader only. The lists of webhooks are never emptied: while a webhook cannot be reached the API
//! server refuses what it would have to review (fail closed). Entries that are not ours are left alone.
//!
//! All of it belongs to the operator's ClusterRole and goes with it. Without that nothing is created.

mod aks;
mod apply;
mod gated;
mod metrics;
mod observe;
mod ownership;
mod plan;
mod policies;
mod step;
#[cfg(test)]
mod tests;
mod upkeep;
mod writers;

use std::time::Duration;

use kube::Client;
use sluice_api::names;
use sluice_manifests::{InstallOptions, admission_policies};
use sluice_runtime::backoff::{Backoff, process_seed};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificates::{LoopError, Secrets};
use crate::pace::{Limits, Pace};
use crate::presence::{Presence, Removal};
use crate::troubles::AdmissionTroubles;
pub use metrics::AdmissionMetrics;
use observe::{Kind, Sources, World};
use plan::Plan;
use upkeep::Upkeep;

/// How long an API server is given to put a changed admission policy in force, which takes it up to a second. A bound and no
/// signal: nothing tells that a server follows a policy whose selector alone has changed, so what refuses grows after it.
const FOLLOWED: Duration = Duration::from_secs(2);

/// A change of the selector and a rotation of the authorities write an object some times, and must not wait. Pauses are
/// short even in a fight: an object that is wrong gates no pods, or refuses them.
const LIMITS: Limits = Limits {
    free: 20,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(5),
    calm: Duration::from_secs(10),
};

/// Keeps them until `shutdown`. Start it once the lease is held; `may_write` is asked before each write. `options`
/// say where the installation is and how its webhook is reached; authorities and namespaces are found by watching.
/// `troubles` gets what is wrong with them, for people, and `metrics` what others changed. But for policies that stand,
/// nothing is made unless `presence` says so; otherwise another loop removes what is there, and once that `removal` has
/// begun nothing is kept any more.
///
/// # Errors
/// When something has to be written and `may_write` says no.
pub async fn run(
    client: Client,
    secrets: Secrets,
    options: InstallOptions,
    (presence, removal): (watch::Receiver<Presence>, watch::Receiver<Removal>),
    (troubles, metrics): (watch::Sender<AdmissionTroubles>, AdmissionMetrics),
    may_write: impl Fn() -> bool,
    shutdown: CancellationToken,
) -> Result<(), LoopError> {
    if shutdown.run_until_cancelled(secrets.read_again()).await.is_none() {
        return Ok(());
    }
    let (seen, world) = watch::channel(World::default());
    let sources = Sources::new(client.clone(), &options.namespace, secrets.ca(), seen);
    let policies = admission_policies(&options);
    tokio::select! {
        result = keep(&client, (world, presence, removal), &options, (&troubles, &metrics), may_write) => result,
        () = sources.follow(&policies, shutdown) => Ok(()),
    }
}

async fn keep(
    client: &Client,
    (mut seen, mut presence, mut removal): (
        watch::Receiver<World>,
        watch::Receiver<Presence>,
        watch::Receiver<Removal>,
    ),
    options: &InstallOptions,
    (troubles, metrics): (&watch::Sender<AdmissionTroubles>, &AdmissionMetrics),
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
    let mut pace = Pace::default();
    loop {
        let mut world = seen.borrow_and_update().clone();
        world.upkeep = Upkeep::of(&presence.borrow_and_update(), &removal.borrow_and_update());
        let (mut failed, mut selected, mut again) = (false, false, None);
        let plan = plan::plan(&world, options);
        let guards_containers = guards_containers(&world, &plan);
        for step in plan.steps {
            // What is planned anew comes soon.
            if presence.has_changed().unwrap_or(true) || removal.has_changed().unwrap_or(true) {
                break;
            }
            // Another controller may insist on something different as quickly as we do.
            if let Some(due) = pace.held(&step.kind(), Instant::now()) {
                again = again.into_iter().chain([due]).min();
                continue;
            }
            selected |= step.selects_for_gates();
            if !may_write() {
                return Err(LoopError::NotLeading { what: "webhook configurations" });
            }
            pace.wrote(&step.kind(), LIMITS, Instant::now());
            let (kind, changed_by) =
                (step.kind(), world.last_other_writer(step.kind()).filter(|_| step.puts_back()));
            let is_done = apply::apply(client, &options.namespace, step).await;
            failed |= !is_done;
            if let Some(manager) = changed_by.filter(|_| is_done) {
                metrics.put_back(kind, manager);
            }
        }
        let (contested, over) = fought_over(&pace, Instant::now());
        again = again.into_iter().chain(over).min();
        let (withheld, left) = (plan.withheld, plan.left);
        tell(troubles, AdmissionTroubles { withheld, left, contested, guards_containers });
        if selected {
            tokio::time::sleep(FOLLOWED).await;
        }
        if failed {
            let retry = Instant::now() + backoff.failed();
            again = again.into_iter().chain([retry]).min();
        } else {
            backoff.reset();
        }
        let timer = async {
            match again {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let gone = tokio::select! {
            changed = seen.changed() => changed.is_err(),
            changed = presence.changed() => changed.is_err(),
            changed = removal.changed() => changed.is_err(),
            () = timer => false,
        };
        if gone {
            return Ok(());
        }
    }
}

/// Whether the policy of containers of `Evaluator`s and its binding are there, and nothing has to be done about them.
fn guards_containers(world: &World, plan: &Plan) -> bool {
    let (name, mutates) = (names::EVALUATOR_POLICY, false);
    let is_there = |kind: &Kind| world.fixed.get(kind).is_some_and(Option::is_some);
    let is_planned = |kind: &Kind| plan.steps.iter().any(|step| step.kind() == *kind);
    let both = [Kind::Policy { name, mutates }, Kind::Binding { name, mutates }];
    world.installed && both.iter().all(|kind| is_there(kind) && !is_planned(kind))
}

/// A sentence for each object that another client insists on, and when the first of them is over.
fn fought_over(pace: &Pace<Kind>, now: Instant) -> (Vec<String>, Option<Instant>) {
    let sentence = |kind: &Kind| {
        format!(
            "{} {}: another client changes it whenever the operator puts it back: \
             change the options of the installation or the AAQ instead",
            kind.resource().kind,
            kind.name()
        )
    };
    let over = pace.exceeded(now).map(|(_, over)| over).min();
    (pace.exceeded(now).map(|(kind, _)| sentence(kind)).collect(), over)
}

/// Passes on what is wrong, and logs once what is withheld.
fn tell(troubles: &watch::Sender<AdmissionTroubles>, now: AdmissionTroubles) {
    let (why, mut is_news) = (now.withheld.clone(), false);
    troubles.send_if_modified(|told| {
        is_news = told.withheld != now.withheld;
        let is_other = *told != now;
        *told = now;
        is_other
    });
    match why.filter(|_| is_news) {
        Some(why) => tracing::error!(%why, "admission objects are missing and not created"),
        None if is_news => tracing::info!("admission objects that are missing are created again"),
        None => {}
    }
}
