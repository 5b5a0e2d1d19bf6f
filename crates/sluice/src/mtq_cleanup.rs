//! `sluice mtq-leftovers`: reads the cluster once, and with `--clean` ends what is left.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use jiff::SignedDuration;
use kube::Client;
use sluice_api::names;
use sluice_controllers::mtq_cleanup::{Error, clean, list};
use sluice_runtime::client::{ClientOptions, connect};
use sluice_runtime::shutdown::on_signal;

/// Exit code when something is left.
const LEFT: u8 = 3;

/// Flags of `sluice mtq-leftovers`.
#[derive(Debug, clap::Args)]
pub struct MtqLeftoversArgs {
    /// Kubeconfig file; without it, the in-cluster environment or the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Restore quotas, remove locks and clear records; without it nothing is changed
    #[arg(long)]
    clean: bool,
    /// How old a lock has to be before it counts as left behind, such as `60s`; --clean waits for younger ones
    #[arg(long, value_name = "TIME", default_value = "60s")]
    lock_age: SignedDuration,
    /// How to print what is left
    #[arg(short, long, value_enum, default_value_t = Output::Table, conflicts_with = "clean")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For scripts
    Json,
}

/// Returns when everything was shown or ended, or at a signal: it can be run again.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: MtqLeftoversArgs) -> anyhow::Result<ExitCode> {
    let cancel = on_signal().context("could not install signal handlers")?;
    let client = connect(&ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        user_agent: format!("{}/{}", names::MTQ_CLEANUP, env!("CARGO_PKG_VERSION")),
        ..ClientOptions::default()
    })
    .await?;
    tokio::select! {
        () = cancel.cancelled() => bail!("stopped by a signal before everything was done; run it again"),
        left = show_or_end(&client, &args) => Ok(if left? { ExitCode::from(LEFT) } else { ExitCode::SUCCESS }),
    }
}

/// Whether something is left.
async fn show_or_end(client: &Client, args: &MtqLeftoversArgs) -> anyhow::Result<bool> {
    let say = |line: &str| _ = writeln!(std::io::stdout(), "{line}");
    if !args.clean {
        let found = list(client, args.lock_age).await?;
        match args.output {
            Output::Table => write!(std::io::stdout(), "{found}")?,
            Output::Json => writeln!(std::io::stdout(), "{:#}", found.json())?,
        }
        return Ok(!found.namespaces.is_empty());
    }
    match clean(client, args.lock_age, say).await {
        Ok(outcome) => {
            let (ended, left) = (outcome.ended, outcome.left);
            say(&format!("ended in {ended} namespaces, something is left in {left}"));
            Ok(left > 0)
        }
        Err(error @ Error::Alive(_)) => {
            say(&error.to_string());
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}
