//! `sluice uninstall`: looks, plans ([`sluice_manifests::uninstall`]), does, and looks again until nothing is left to do.

mod apply;
mod finalizers;
mod goes_on;
mod home;
mod observe;
mod release;
mod report;
mod requests;
mod restore;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;

use kube::Client;
use sluice_api::names;
use sluice_manifests::uninstall::{Found, ObjectName, Seen, Step, Wish, plan};
use sluice_runtime::client::{ClientOptions, connect};
use sluice_runtime::clock::ServerClock;

use crate::cli::cluster::WayArgs;
use crate::output::Output;
use crate::progress::{Say, to_stderr};
pub(crate) use apply::Removal;
pub(crate) use goes_on::GoesOn;
pub(crate) use observe::observe_made;
pub(crate) use report::Report;

/// Exit code of clap for arguments that are wrong.
const WRONG_ARGUMENTS: u8 = 2;
/// Exit code when something is left.
const LEFT: u8 = 3;
/// What is there again after so many times is made by another program.
const ROUNDS: usize = 4;

/// Flags of `sluice uninstall`.
#[derive(Debug, clap::Args)]
pub struct UninstallArgs {
    /// Namespace of the installation
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", default_value = names::INSTALL_NAMESPACE)]
    namespace: String,
    /// Leave quotas and grants of head-room as they are, which is the default
    #[arg(long, conflicts_with = "delete_quotas")]
    keep_quotas: bool,
    /// Delete all quotas and grants of head-room too, in all namespaces; with `--yes`
    #[arg(long)]
    delete_quotas: bool,
    /// Delete the CRDs too, and with them every object of their kinds, an AAQ and an MTQ included; with `--yes`. One that
    /// has an owner, or a label of another program, is left
    #[arg(long, requires = "delete_quotas")]
    delete_crds: bool,
    /// Do not ask: what users have written is deleted
    #[arg(long)]
    yes: bool,
    /// Leave what was applied (Deployments, roles, Services, …) to Helm, or to who has applied it. It is stopped
    #[arg(long)]
    keep_objects: bool,
    /// Print what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// How to print what was done
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    cluster: WayArgs,
}

impl UninstallArgs {
    const fn wish(&self) -> Wish {
        Wish {
            keep_objects: self.keep_objects,
            keep_operator: false,
            quotas: self.delete_quotas && !self.keep_quotas,
            definitions: self.delete_crds,
        }
    }

    /// What users have written is to go, and nobody has said that this is meant.
    const fn is_unsure(&self) -> bool {
        self.delete_quotas && !self.yes && !self.dry_run
    }
}

/// Removes the installation and prints what was done.
///
/// # Errors
/// When the cluster cannot be read or written, or a right is missing.
pub async fn run(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let wish = args.wish();
    let clock = Arc::new(ServerClock::default());
    let options = args.cluster.options(names::UNINSTALL, &clock)?;
    let client = connect(&options).await?;
    let seen = observe::observe(&client, &args.namespace, &wish).await?;
    let mut report = Report::new(&args.namespace, args.dry_run || args.is_unsure());
    let mut outcome = Ok(());
    if args.dry_run || args.is_unsure() {
        foresee(&client, &seen, &wish, &mut report).await;
    } else if seen.blocking().next().is_none() {
        check_rights(&client, &seen, &wish).await?;
        // Without what --as says beside the name: the groups of somebody else are not this one's.
        let as_quota_controller = ClientOptions {
            impersonate: Some(names::quota_controller_username()),
            impersonate_groups: Vec::new(),
            impersonate_uid: None,
            ..options
        };
        let impersonating = connect(&as_quota_controller).await?;
        outcome = remove(client, (impersonating, clock), seen, &wish, &mut report).await;
    } else {
        report.blocked(&seen);
    }
    // Also before an error: what was done is done.
    let printed = report.print(args.output);
    outcome?;
    printed?;
    if args.is_unsure() {
        eprintln!(
            "error: --delete-quotas deletes what users have written: add --yes, or leave it out. Nothing was changed"
        );
        return Ok(ExitCode::from(WRONG_ARGUMENTS));
    }
    Ok(if report.is_anything_left() { ExitCode::from(LEFT) } else { ExitCode::SUCCESS })
}

/// Says what would be done.
async fn foresee(client: &Client, seen: &Seen, wish: &Wish, report: &mut Report) {
    if seen.blocking().next().is_some() {
        report.blocked(seen);
        return;
    }
    for step in plan(seen, wish) {
        report.planned(&step, seen);
    }
    if due_home(seen, wish).is_some() {
        home::foresee(client, seen, report).await;
    }
    report.end(seen, wish);
}

/// Asks whether this account may do all of it.
async fn check_rights(client: &Client, seen: &Seen, wish: &Wish) -> anyhow::Result<()> {
    let last = due_home(seen, wish).map(|(home, found)| Step::Delete(home.clone(), found.uid.clone()));
    let all: Vec<_> = plan(seen, wish).into_iter().chain(last).collect();
    requests::check_rights(client, &all, &seen.namespace).await
}

/// The namespace, if it is to go.
fn due_home<'s>(seen: &'s Seen, wish: &Wish) -> Option<(&'s ObjectName, &'s Found)> {
    seen.home().filter(|_| !wish.keep_objects)
}

async fn remove(
    client: Client,
    as_quota_controller: (Client, Arc<ServerClock>),
    mut seen: Seen,
    wish: &Wish,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut steps = plan(&seen, wish);
    let (namespace, with) = (seen.namespace.clone(), (to_stderr as Say, &(|| true) as GoesOn<'_>));
    let mut removal = Removal::new(client.clone(), as_quota_controller, namespace, with);
    let mut is_held_up = false;
    for _ in 0..ROUNDS {
        if steps.is_empty() {
            break;
        }
        is_held_up = false;
        for step in &steps {
            is_held_up = removal.carry_out(step, report).await?.is_some();
            if is_held_up {
                break;
            }
        }
        seen = observe::observe(&client, &seen.namespace, wish).await?;
        let next = plan(&seen, wish);
        // What is left the same is not done by doing it again.
        let is_stuck = next == steps;
        steps = next;
        if is_stuck {
            break;
        }
    }
    // What is held up is told of with the reason, and is not made again by anybody.
    if !is_held_up {
        report.unfinished(&steps);
    }
    if seen.processes > 0 {
        let running = observe::processes(&client, &seen.namespace).await?;
        report.running(running.into_iter().map(|process| process.name).collect());
    }
    report.end(&seen, wish);
    if steps.is_empty() {
        if due_home(&seen, wish).is_some() {
            home::remove(&client, &seen, report).await?;
        }
        return Ok(());
    }
    if !report.is_anything_left() {
        report.again();
    }
    if let Some((home, _)) = due_home(&seen, wish) {
        report.kept_home(&home.name);
    }
    Ok(())
}

/// What a step is about, for a message.
fn object_of(step: &Step) -> Option<String> {
    match step {
        Step::Stop(object) | Step::Delete(object, _) => Some(object.to_string()),
        Step::Clear(collection) => Some(collection.kind().kind),
        Step::Wait(_) | Step::Release | Step::Restore | Step::Unfinalize => None,
    }
}
