//! `sluice check`: whether an installation works, or can be made. What is read is judged by pure functions.

mod about;
mod judge;
mod look;
mod objects;
mod rights;
mod seen;
#[cfg(test)]
mod tests;
mod told;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::names;

use super::cluster::{ClusterArgs, Connection};
use super::printed::{Exit, Format, OutputArgs, print, print_value};
use about::{About, Check, State};

/// Between two looks with `--wait`.
const PAUSE: Duration = Duration::from_secs(1);

/// Flags of `sluice check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Before an installation: whether the cluster can have one
    #[arg(long)]
    pre: bool,
    /// Wait until nothing fails, at most so long: 30s, 2m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Namespace of the installation
    #[arg(long, value_name = "NAME", default_value = names::INSTALL_NAMESPACE)]
    install_namespace: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    let read = text.parse::<SignedDuration>().ok().and_then(|lasts| Duration::try_from(lasts).ok());
    read.ok_or_else(|| "write one like 30s or 2m".to_owned())
}

/// Checks, and prints what was found.
///
/// # Errors
/// When the kubeconfig cannot be used, or standard output cannot be written.
pub async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let connection = args.cluster.connect().await?;
    let begin = Instant::now();
    loop {
        let look = async {
            match args.pre {
                true => judge::before(&look::before(&connection).await),
                false => after(&connection, &args.install_namespace).await,
            }
        };
        let checks = connection.saying("reading what is checked", look).await;
        let is_good = checks.iter().all(|check| check.state <= State::Warning);
        if is_good || args.wait.is_none_or(|most| begin.elapsed() >= most) {
            say(&checks, args.output.output)?;
            return Ok(exit(&checks).into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn after(connection: &Connection, namespace: &str) -> Vec<Check> {
    judge::after(&look::after(connection, namespace).await)
}

/// What is found of an installation, for programs.
pub async fn found(connection: &Connection, namespace: &str) -> Value {
    value(&after(connection, namespace).await)
}

fn exit(checks: &[Check]) -> Exit {
    let has = |state| checks.iter().any(|check| check.state == state);
    match (has(State::Failed), has(State::Unknown)) {
        (true, _) => Exit::Held,
        (false, true) => Exit::Unknown,
        (false, false) => Exit::Good,
    }
}

fn value(checks: &[Check]) -> Value {
    let items = checks.iter().map(|check| {
        let About { name, hint, page } = *check.about;
        json!({ "name": name, "state": check.state.word(), "found": check.found, "hint": hint, "page": page })
    });
    json!({ "apiVersion": "cli.sluice.dev/v1", "kind": "Check", "items": items.collect::<Vec<_>>() })
}

fn say(checks: &[Check], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json | Format::Yaml => print_value(&value(checks), format)?,
        Format::Name => {
            let failed = checks.iter().filter(|check| check.state > State::Warning);
            print(&failed.map(|check| format!("{}\n", check.about.name)).collect::<String>())?;
        }
        Format::Table | Format::Wide => print(&table(checks))?,
    }
    Ok(())
}

fn table(checks: &[Check]) -> String {
    let many = |state| checks.iter().filter(|check| check.state == state).count();
    let mut text = String::new();
    for check in checks {
        let About { name, hint, page } = check.about;
        text.push_str(&format!("{:<8} {name:<22} {}\n", check.state.word(), check.found));
        if matches!(check.state, State::Failed | State::Warning) {
            text.push_str(&format!("         {hint}: see {page}\n"));
        }
    }
    let (failed, warnings) = (many(State::Failed), many(State::Warning));
    text.push_str(&format!("{failed} failed, {warnings} warnings, {} not known.\n", many(State::Unknown)));
    text
}
