//! Benches: what the engine, the index, the gate, cluster quotas, a large cluster, admission, the webhook, head-room, VMs,
//! evaluators and questions of people cost. Prints tables, writes JSON.
//!
//! ```text
//! cargo build --release -p sluice -p sluice-bench
//! # or: engine, memory, scale, webhook, gate, cluster_quota, admission, headroom, vms, evaluators, why;
//! # --quick: a short look
//! target/release/sluice-bench all
//! ```
//! Each bench runs in a process of its own, so that memory is only what it measures, and has failed when a figure is
//! missing in the file that it wrote. All but `engine` and `memory` drive the `sluice` program that lies beside this one, or
//! the one that `SLUICE_BINARY` names.

mod admission;
mod cluster_json;
mod cluster_quota;
mod engine;
mod evaluators;
mod fake_api;
mod gate;
mod headroom;
mod histogram;
mod kernel;
mod memory;
mod objects;
mod pod_json;
mod report;
mod scale;
mod vms;
mod webhook;
mod whole;
mod why;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::{Parser, ValueEnum};
use report::Run;

// The product's allocator: memory and time are what it makes of them.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Names the `sluice` program that benches start.
const SLUICE_BINARY: &str = "SLUICE_BINARY";

#[derive(Debug, Parser)]
#[command(name = "sluice-bench", about = "Measures Sluice; prints tables and writes JSON files")]
struct Cli {
    /// What to measure
    #[arg(value_enum)]
    bench: Bench,
    /// Fewer repetitions and shorter runs: a look, not a figure
    #[arg(long)]
    quick: bool,
    /// Where the JSON files go
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Measure in this process (the others start one with this flag)
    #[arg(long, hide = true)]
    inner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Bench {
    /// Quantities, charges, ledger, decisions
    Engine,
    /// 150,000 pods in the index
    Memory,
    /// The controller beside 150,000 pods of which 500 a second change
    Scale,
    /// Admission at 1,000 requests a second on one core
    Webhook,
    /// Releases on a real control plane, beside raw PATCHes
    Gate,
    /// The same with one quota for many namespaces, and what 1, 1,000 and 10,000 namespaces under one quota cost
    ClusterQuota,
    /// Creating pods, gated by policy and by webhook, beside pods that are not gated
    Admission,
    /// Live migrations under a full quota, beside such under one with room, and while one of two API servers stands still
    Headroom,
    /// Virtual machines under quotas that count them: 10,000 in the gate's state, and a drain under full quotas
    Vms,
    /// Sidecars and rules that say what pods take, beside the same without them
    Evaluators,
    /// Questions of a tenant beside releases, `sluice top` and a scrape at 10,000 quotas
    Why,
    /// All of them
    All,
}

impl Bench {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.inner {
        return measure(cli.bench, &Run::new(cli.quick, cli.out));
    }
    if cfg!(debug_assertions) {
        report::say("this is a debug build: its figures mean nothing, build with --release");
    }
    let is_meant =
        |bench: &&Bench| if cli.bench == Bench::All { **bench != Bench::All } else { **bench == cli.bench };
    let mut failed = Vec::new();
    for bench in Bench::value_variants().iter().filter(is_meant) {
        if let Err(error) = start(*bench, &cli) {
            report::say(&format!("{}: {error:#}", bench.name()));
            failed.push(bench.name());
        }
    }
    ensure!(failed.is_empty(), "without a result: {}", failed.join(", "));
    Ok(())
}

/// Runs one bench in a process of its own, waits for it and looks whether its file is whole.
fn start(bench: Bench, cli: &Cli) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("finding the own program")?;
    bench.forget(&cli.out)?;
    let mut command = Command::new(&own);
    command.arg(bench.name()).args(["--inner", "--out"]).arg(&cli.out);
    if cli.quick {
        command.arg("--quick");
    }
    if !matches!(bench, Bench::Engine | Bench::Memory) {
        command.env(SLUICE_BINARY, sluice_program(&own)?);
        // What a user runs with: logs of every release would be measured too.
        command.env("SLUICE_LOG", "info");
    }
    let status = command.status().context("starting the bench")?;
    ensure!(status.success(), "the bench ended with {status}");
    bench.check(&cli.out)
}

fn sluice_program(own: &Path) -> anyhow::Result<PathBuf> {
    let program = match std::env::var_os(SLUICE_BINARY) {
        Some(given) => PathBuf::from(given),
        None => own.with_file_name("sluice"),
    };
    ensure!(
        program.is_file(),
        "no program {}: build it with `cargo build --release -p sluice`, or name one with {SLUICE_BINARY}",
        program.display()
    );
    program.canonicalize().context("finding the sluice program")
}

fn measure(bench: Bench, run: &Run) -> anyhow::Result<()> {
    match bench {
        Bench::Engine => engine::run(run),
        Bench::Memory => memory::run(run),
        Bench::Scale => runtime()?.block_on(scale::run(run)),
        Bench::Webhook => webhook::run(run),
        Bench::Gate => runtime()?.block_on(gate::run(run)),
        Bench::ClusterQuota => runtime()?.block_on(cluster_quota::run(run)),
        Bench::Admission => runtime()?.block_on(admission::run(run)),
        Bench::Headroom => runtime()?.block_on(headroom::run(run.quick, &run.out)),
        Bench::Vms => runtime()?.block_on(vms::run(run)),
        Bench::Evaluators => runtime()?.block_on(evaluators::run(run)),
        Bench::Why => runtime()?.block_on(why::run(run)),
        Bench::All => Ok(()),
    }
}

/// A runtime for benches that talk to other programs.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    sluice_runtime::client::install_crypto_provider();
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}
