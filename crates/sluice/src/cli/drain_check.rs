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
use super::nearest::hint;
use super::printed::{Exit, OutputArgs};
use row::{IN_TURN, NOT_KNOWN, NOW};
use sluice_gate::plain;

pub(in crate::cli) use row::Row;

/// Flags of `sluice drain-check`.
#[derive(Debug, clap::Args)]
pub struct DrainCheckArgs {
    /// The node
    #[arg(add = ArgValueCompleter::new(NamesOf::Nodes))]
    node: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Tells of each VM of the node.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: DrainCheckArgs) -> anyhow::Result<ExitCode> {
    let connection = args.cluster.connect().await?;
    let (rows, missing) = match look(&connection, &args.node).await {
        Err(error) if error.is::<NoSuchNode>() => {
            eprintln!("error: {}", plain(&error.to_string()));
            return Ok(Exit::Unknown.into());
        }
        looked => looked?,
    };
    say::say(&rows, &missing, args.output.output)?;
    let exit = rows.iter().map(|row| match row.result {
        NOW | IN_TURN => Exit::Good,
        NOT_KNOWN => Exit::Unknown,
        _ => Exit::Held,
    });
    let exit = if missing.is_empty() { exit.max().unwrap_or(Exit::Good) } else { Exit::Unknown };
    Ok(exit.into())
}

/// The node is none of the cluster.
#[derive(Debug, thiserror::Error)]
#[error("node {name} not found{}", hint(.near))]
struct NoSuchNode {
    name: String,
    near: Vec<String>,
}

/// What comes of each VM of a node, and the rights that were missing.
pub(in crate::cli) async fn look(
    connection: &Connection,
    node: &str,
) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let (observed, missing) = observe::observe(connection, node).await?;
    if observed.machines.is_empty() {
        // A name that is wrong by a letter has no VMs either, and its drain would be taken for harmless.
        let (is_known, more) = observe::knows_node(connection, node).await?;
        if let Err(near) = is_known {
            return Err(NoSuchNode { name: node.to_owned(), near }.into());
        }
        return Ok((Vec::new(), missing.into_iter().chain(more).collect()));
    }
    Ok((plan::plan(&mut predicted::Predicted::new(observed)), missing))
}
