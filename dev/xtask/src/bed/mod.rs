//! `xtask bed`: a control plane that stays until it is taken down.

mod agent;

use std::io::Write as _;

use anyhow::Context as _;
use sluice_testbed::{Bed, BedOptions, State, artifacts};

use agent::Agent;

/// Commands about persistent test beds.
#[derive(Debug, clap::Subcommand)]
pub enum BedCommand {
    /// Start a control plane with simulated nodes; prints how to use it.
    Up {
        /// Name of the bed; several can run side by side.
        #[arg(long, default_value = "default")]
        name: String,
        /// Simulated nodes (32 CPUs, 128 GiB each).
        #[arg(long, default_value_t = 3)]
        nodes: usize,
        /// With KubeVirt: its controller, and simulated node agents.
        #[arg(long)]
        kubevirt: bool,
        /// With Sluice, built of the sources as they are.
        #[arg(long)]
        sluice: bool,
    },
    /// Build Sluice and put it into a running control plane, in the place of the one there was.
    Sync {
        /// Name of the bed.
        #[arg(long, default_value = "default")]
        name: String,
    },
    /// Stop a control plane and remove all it left.
    Down {
        /// Name of the bed.
        #[arg(long, default_value = "default")]
        name: String,
        /// All beds.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List control planes.
    Status {
        /// `table` or `json`.
        #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
        output: String,
    },
    /// Build the programs of the test bed without starting them.
    Build,
}

/// Runs one of the commands.
///
/// # Errors
/// When a program cannot be built, started or stopped.
pub async fn run(command: BedCommand) -> anyhow::Result<()> {
    match command {
        BedCommand::Up { name, nodes, kubevirt, sluice } => {
            let agent = if sluice { Some(Agent::Sluice) } else { kubevirt.then_some(Agent::VirtHandler) };
            up(&name, nodes, kubevirt, agent).await
        }
        BedCommand::Sync { name } => sync(&name).await,
        BedCommand::Down { name, all: false } => down(&name).await,
        BedCommand::Down { all: true, .. } => {
            for state in State::all()? {
                down(&state.name()).await?;
            }
            Ok(())
        }
        BedCommand::Status { output } => status(&output),
        BedCommand::Build => {
            let paths = tokio::task::spawn_blocking(|| {
                anyhow::Ok([artifacts::kubernetes()?, artifacts::kwok()?, artifacts::kubevirt()?])
            });
            for path in paths.await.context("building")?? {
                print(&path.display().to_string())?;
            }
            Ok(())
        }
    }
}

async fn up(name: &str, nodes: usize, kubevirt: bool, agent: Option<Agent>) -> anyhow::Result<()> {
    let dir = State::dir_of(name)?;
    if let Ok(state) = State::load(&dir) {
        if !state.processes.is_empty()
            && state.processes.values().all(sluice_testbed::process::ProcessId::is_alive)
        {
            print(&format!("# bed {name} is already up at {}", state.server_url()))?;
            return print(&format!("export KUBECONFIG={}", state.admin_kubeconfig().display()));
        }
        // Some of it died (a reboot, say): nothing there is worth keeping.
        state.stop().await?;
    } else if dir.exists() {
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("removing the unfinished {}", dir.display()))?;
    }
    let bed = Bed::start_persistent(dir.clone(), BedOptions { kubevirt, ..BedOptions::default() }).await?;
    if nodes > 0 && kubevirt {
        bed.kubevirt()?.add_nodes(nodes).await?;
    } else if nodes > 0 {
        bed.add_nodes(nodes, &[("cpu", "32"), ("memory", "128Gi")]).await?;
    }
    if let Some(agent) = agent {
        agent::start(&mut State::load(&dir)?, agent).await?;
    }
    let seconds = bed.ready_after().as_secs_f32();
    print(&format!(
        "# bed {name}: {} with {nodes} simulated nodes, ready after {seconds:.1} s",
        bed.server_url()
    ))?;
    if agent == Some(Agent::Sluice) {
        print(&format!("# after a change of Sluice: cargo xtask bed sync --name {name}"))?;
    }
    print(&format!("# stop it with: cargo xtask bed down --name {name}"))?;
    print(&format!("export KUBECONFIG={}", bed.admin_kubeconfig().display()))
}

async fn sync(name: &str) -> anyhow::Result<()> {
    let state = State::load(&State::dir_of(name)?);
    let mut state =
        state.with_context(|| format!("bed {name} is not up: cargo xtask bed up --name {name}"))?;
    agent::start(&mut state, Agent::Sluice).await?;
    print(&format!("# bed {name} runs Sluice as it is built now; logs: {}", state.dir.join("logs").display()))
}

async fn down(name: &str) -> anyhow::Result<()> {
    let dir = State::dir_of(name)?;
    if !dir.exists() {
        return print(&format!("bed {name} is not up"));
    }
    match State::load(&dir) {
        Ok(state) => state.stop().await?,
        // Without a record no process was started: the directory is all there is.
        Err(_) if !dir.join("state.json").exists() => std::fs::remove_dir_all(&dir)?,
        Err(error) => return Err(error),
    }
    print(&format!("bed {name} is down"))
}

fn status(output: &str) -> anyhow::Result<()> {
    let beds = State::all()?;
    if output == "json" {
        let rows: Vec<_> = beds.iter().map(row).collect();
        return print(&serde_json::to_string_pretty(&rows)?);
    }
    print(&format!("{:<16} {:<24} {:<10} KUBECONFIG", "NAME", "SERVER", "RUNNING"))?;
    for bed in &beds {
        let running = bed.processes.values().filter(|process| process.is_alive()).count();
        let running = format!("{running}/{}", bed.processes.len());
        let kubeconfig = bed.admin_kubeconfig();
        print(&format!(
            "{:<16} {:<24} {running:<10} {}",
            bed.name(),
            bed.server_url(),
            kubeconfig.display()
        ))?;
    }
    Ok(())
}

fn row(bed: &State) -> serde_json::Value {
    let processes = bed.processes.iter().map(|(component, process)| {
        let value = serde_json::json!({"pid": process.pid, "running": process.is_alive()});
        (component.name().to_owned(), value)
    });
    serde_json::json!({
        "name": bed.name(),
        "server": bed.server_url(),
        "kubeconfig": bed.admin_kubeconfig(),
        "processes": processes.collect::<serde_json::Map<_, _>>(),
    })
}

fn print(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}
