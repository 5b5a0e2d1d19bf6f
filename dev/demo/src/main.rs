//! Pods held by a quota and released when there is room, in one namespace and in two that share a quota, VMs that are
//! counted as VMs, and a live migration through a full native quota, as a story to watch (`make demo`).

mod arguments;
mod background;
mod board;
mod cluster;
mod examples;
mod existing;
mod follow;
mod migration;
mod own;
mod page;
mod quota_line;
mod reason;
mod scene;
mod screen;
mod signals;
mod stage;
mod story;
mod summary;
mod table;
mod vms;
mod watches;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;

use arguments::Arguments;
use background::Outcome;
use screen::{Screen, Size};
use signals::{Interrupted, Signals};

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
/// Names the `sluice` program for everything that starts it.
const SLUICE: &str = "SLUICE_BINARY";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = with_sluice().and_then(|()| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting tokio")?;
        let result = runtime.block_on(run(arguments));
        // A build that was interrupted removes its half-made directory; a question is not waited for.
        runtime.shutdown_timeout(Duration::from_secs(2));
        result
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{}{error:#}", if error.is::<Interrupted>() { "\n" } else { "error: " });
            ExitCode::from(if error.is::<Interrupted>() { INTERRUPTED } else { 1 })
        }
    }
}

/// Starts this program anew, knowing of the `sluice` that was built beside it: it need not be built again.
fn with_sluice() -> anyhow::Result<()> {
    let demo = std::env::current_exe().context("finding this program")?;
    let sluice = demo.with_file_name("sluice");
    if std::env::var_os(SLUICE).is_some() || !sluice.is_file() {
        return Ok(());
    }
    let error = Command::new(demo).args(std::env::args_os().skip(1)).env(SLUICE, sluice).exec();
    Err(error).context("starting this program anew")
}

async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let signals = Signals::listen()?;
    let size = arguments.terminal.or_else(Size::of_stdout);
    if let Some(kubeconfig) = &arguments.kubeconfig {
        return existing::run(kubeconfig, &arguments, Screen::new(size), signals).await.map(|()| 0);
    }
    if arguments.keep && !arguments.in_background {
        let mut words = vec!["--keep".to_owned(), format!("--pace={}", arguments.pace.as_secs_f64())];
        words.extend(arguments.page.then(|| "--page".to_owned()));
        return Ok(match background::run(&words, size, &signals).await? {
            Outcome::Detached => 0,
            Outcome::Ended(code) => code,
        });
    }
    own::run(&arguments, Screen::new(size), signals).await.map(|()| 0)
}
