//! `sluice mtq-leftovers`: reads the cluster once and prints what it finds.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_controllers::mtq_leftovers::list;
use sluice_runtime::client::{ClientOptions, connect};

use crate::output::Output;

/// Exit code when something is left.
const LEFT: u8 = 3;

/// Flags of `sluice mtq-leftovers`.
#[derive(Debug, clap::Args)]
pub struct MtqLeftoversArgs {
    /// Kubeconfig file; without it, the in-cluster environment or the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How to print what is left
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Prints what is left.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: MtqLeftoversArgs) -> anyhow::Result<ExitCode> {
    let options = ClientOptions { kubeconfig: args.kubeconfig, ..ClientOptions::default() };
    let left = list(&connect(&options).await?).await?;
    match args.output {
        Output::Table => write!(std::io::stdout(), "{left}")?,
        Output::Json => writeln!(std::io::stdout(), "{}", left.json()?)?,
    }
    Ok(if left.0.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT) })
}
