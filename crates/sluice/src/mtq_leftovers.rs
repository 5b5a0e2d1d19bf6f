//! `sluice mtq-leftovers`: reads the cluster once and prints what it finds.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use sluice_controllers::mtq_leftovers::list;
use sluice_runtime::client::connect;

use crate::cli::cluster::WayArgs;
use crate::output::Output;

/// Exit code when something is left.
const LEFT: u8 = 3;

/// Flags of `sluice mtq-leftovers`.
#[derive(Debug, clap::Args)]
pub struct MtqLeftoversArgs {
    /// How to print what is left
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    cluster: WayArgs,
}

/// Prints what is left.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: MtqLeftoversArgs) -> anyhow::Result<ExitCode> {
    let options = args.cluster.options("sluice-cli", &Arc::default())?;
    let left = list(&connect(&options).await?).await?;
    match args.output {
        Output::Table => write!(std::io::stdout(), "{left}")?,
        Output::Json => writeln!(std::io::stdout(), "{}", left.json()?)?,
    }
    Ok(if left.0.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT) })
}
