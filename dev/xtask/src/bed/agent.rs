//! What runs on a bed that stays: Sluice, built of the sources as they are, and the simulated node agents of KubeVirt.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use sluice_testbed::State;

use crate::shell::{cargo, run, target_directory};

/// The program of `sluice-e2e` that runs it.
const AGENT: &str = "sluice-on-bed";

/// What of it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    /// All of it.
    Sluice,
    /// The simulated node agents alone.
    VirtHandler,
}

/// Builds it and starts it in the place of what ran before. It goes on when this process ends.
///
/// # Errors
/// When it does not build or does not become ready; its log is named then.
pub(super) async fn start(state: &mut State, agent: Agent) -> anyhow::Result<()> {
    build()?;
    state.end_agent().await?;
    let path = state.dir.join("logs").join("sluice-on-bed.log");
    let log = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let programs = target_directory().join("debug");
    let mut command = Command::new(programs.join(AGENT));
    command.arg(state.name()).args((agent == Agent::VirtHandler).then_some("virt-handler"));
    command.env("SLUICE_BINARY", programs.join("sluice"));
    // A group of its own: Ctrl-C at the terminal does not reach it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().with_context(|| format!("starting {AGENT}"))?;
    state.set_agent(child.id())?;
    let output = child.stdout.take().with_context(|| format!("{AGENT} has no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).with_context(|| format!("reading from {AGENT}"))?;
    if line.trim() != "ready" {
        let status = child.wait().with_context(|| format!("waiting for {AGENT}"))?;
        let said = std::fs::read_to_string(&path).unwrap_or_default();
        bail!("{AGENT} ended with {status}: {}", said.trim());
    }
    Ok(())
}

/// With the packages that every other selection has, so that nothing is compiled twice.
fn build() -> anyhow::Result<()> {
    let packages = ["workspace-hack", "sluice", "sluice-e2e"];
    let mut command = cargo();
    command.args(["build", "--locked"]).args(packages.iter().flat_map(|package| ["--package", package]));
    run(command.args(["--bin", "sluice", "--bin", AGENT]))
}
