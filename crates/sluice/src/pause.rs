//! `sluice pause` and `sluice resume`: annotations say what is paused, until when, and how fast those go that wait.

mod offline;
mod target;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use sluice_api::{DEFAULT_PAUSE_RATE, HIGHEST_PAUSE_RATE, LONGEST_PAUSE, names};
use sluice_runtime::client::connect;
use sluice_runtime::clock::ServerClock;

use crate::cli::cluster::WayArgs;
use crate::requests::RequestError;
use offline::Released;
use target::{Order, Target};

/// Exit code of clap for arguments that are wrong.
const WRONG_ARGUMENTS: u8 = 2;
/// Exit code when pods wait still.
const LEFT: u8 = 3;

/// Flags of `sluice pause`.
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// How long: 30m, 2h, 1h30m; at most 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    lasts: SignedDuration,
    /// So many of the pods that wait go in a second, at most
    #[arg(long, value_name = "PODS", default_value_t = DEFAULT_PAUSE_RATE,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(HIGHEST_PAUSE_RATE)))]
    rate: u32,
    /// Do not ask: all namespaces are meant
    #[arg(long)]
    yes: bool,
    /// Take the gates off with the rights of this account, for no process of Sluice does
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    cluster: WayArgs,
}

/// Flags of `sluice resume`.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    cluster: WayArgs,
}

/// The namespaces that are meant.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ScopeArgs {
    /// Namespace; may be given several times
    #[arg(short, long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
    /// All namespaces
    #[arg(long)]
    all: bool,
}

async fn connected(cluster: &WayArgs) -> anyhow::Result<(Client, Arc<ServerClock>)> {
    let clock = Arc::new(ServerClock::default());
    Ok((connect(&cluster.options(names::PAUSE, &clock)?).await?, clock))
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let read = text.parse::<SignedDuration>().ok();
    read.filter(|lasts| *lasts > SignedDuration::ZERO && *lasts <= LONGEST_PAUSE)
        .ok_or_else(|| format!("write one like 30m, 2h or 1h30m, at most {}h", LONGEST_PAUSE.as_hours()))
}

/// Pauses, and prints what was done.
///
/// # Errors
/// When the cluster cannot be read or written, or a right is missing.
pub async fn run(args: PauseArgs) -> anyhow::Result<ExitCode> {
    let (client, clock) = connected(&args.cluster).await?;
    let scope = &args.scope;
    let namespaces = (!scope.all).then_some(scope.namespaces.as_slice());
    let waiting = offline::held(&client, namespaces).await?.len();
    // By the clock of the API server, whose answer this was.
    let since = Timestamp::from_second(clock.reckoned().as_second())?;
    let until = Timestamp::from_second(since.checked_add(args.lasts)?.as_second())?;
    let order = Order { since, until, rate: args.rate };
    if scope.all && !args.yes {
        say(&format!(
            "all namespaces would be paused until {until}: {waiting} pods wait; nothing was changed"
        ))?;
        eprintln!("error: --all lets pods of all namespaces go without room in their quotas: add --yes");
        return Ok(ExitCode::from(WRONG_ARGUMENTS));
    }
    let targets = if !scope.all {
        scope.namespaces.iter().cloned().map(Target::Namespace).collect()
    } else if args.offline {
        // Namespaces are paused as their pods are found: there may be no AAQ, and the policy that guards gates reads none.
        Vec::new()
    } else {
        vec![target::configuration(&client).await?]
    };
    for target in &targets {
        target.pause(&client, order).await?;
        say(&format!("{target} paused until {until}"))?;
    }
    if !args.offline {
        say(&format!(
            "{waiting} pods wait, {} of them go in a second if a controller of Sluice runs; else add --offline",
            args.rate
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut released = Released::default();
    let done = offline::release(&client, namespaces, (order, &clock), &mut released).await;
    // Also before an error: what was done is done.
    let printed = say(&released.to_string());
    done?;
    printed?;
    Ok(match (released.unpaused.is_empty(), released.left) {
        (false, _) => failed(released.unpaused.values()),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(LEFT),
    })
}

/// Tells of each, for the rest was done.
fn failed<'e>(errors: impl IntoIterator<Item = &'e RequestError>) -> ExitCode {
    errors.into_iter().for_each(|error| eprintln!("error: {error}"));
    ExitCode::FAILURE
}

/// Ends pauses, and prints which.
///
/// # Errors
/// When the cluster cannot be read. What cannot be written is printed, after all others were.
pub async fn resume(args: ResumeArgs) -> anyhow::Result<ExitCode> {
    let (client, clock) = connected(&args.cluster).await?;
    let is_all = args.scope.all;
    let targets = if is_all {
        target::paused(&client).await?
    } else {
        args.scope.namespaces.into_iter().map(Target::Namespace).collect()
    };
    if targets.is_empty() {
        say("nothing is paused")?;
    }
    let mut errors = Vec::new();
    for target in targets {
        match target.resume(&client).await {
            Ok(true) => say(&format!("{target} not paused any more: pods wait for quota"))?,
            Ok(false) => say(&format!("{target} not there"))?,
            Err(error) => errors.push(error),
        }
    }
    if !is_all {
        match target::all_paused(&client, clock.reckoned()).await {
            Ok(None) => {}
            Ok(Some((all, until))) => {
                say(&format!("{all} paused until {until} all the same, which sluice resume --all ends"))?;
            }
            Err(error) => errors.push(error),
        }
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { failed(&errors) })
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_lasts_longer_than_nothing_and_a_day_at_most() {
        for (text, seconds) in [("30m", 1_800), ("2h", 7_200), ("1h30m", 5_400), ("24h", 86_400)] {
            assert_eq!(duration(text).map(|lasts| lasts.as_secs()), Ok(seconds), "{text}");
        }
        for wrong in ["", "0s", "-1h", "2", "25h", "1d", "soon"] {
            assert!(duration(wrong).unwrap_err().contains("at most 24h"), "{wrong}");
        }
    }
}
