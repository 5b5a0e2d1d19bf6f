//! `sluice drain-check`: which VMs of a node can leave it, by their quotas. Room on nodes is the scheduler's.

mod observe;
mod plan;
mod predicted;
mod row;
mod say;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap_complete::engine::ArgValueCompleter;

use super::cluster::{ClusterArgs, Connection};
use super::completion::NamesOf;
use super::printed::{Exit, OutputArgs};
use row::{IN_TURN, NOT_KNOWN, NOW};

pub(in crate::cli) use row::Row;

/// Flags of `sluice drain-check`.
#[derive(Debug, clap::Args)]
pub struct DrainCheckArgs {
    /// The node
    #[arg(add = ArgValueCompleter::new(NamesOf::Nodes))]
    node: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Tells of each VM of the node.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: DrainCheckArgs) -> anyhow::Result<ExitCode> {
    let connection = args.cluster.connect().await?;
    let (rows, missing) = look(&connection, &args.node).await?;
    say::say(&rows, &missing, args.output.output)?;
    let exit = rows.iter().map(|row| match row.result {
        NOW | IN_TURN => Exit::Good,
        NOT_KNOWN => Exit::Unknown,
        _ => Exit::Held,
    });
    let exit = if missing.is_empty() { exit.max().unwrap_or(Exit::Good) } else { Exit::Unknown };
    Ok(exit.into())
}

/// What comes of each VM of a node, and the rights that were missing.
pub(in crate::cli) async fn look(
    connection: &Connection,
    node: &str,
) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let (observed, missing) = observe::observe(connection, node).await?;
    Ok((plan::plan(&mut predicted::Predicted::new(observed)), missing))
}
