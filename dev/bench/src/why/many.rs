//! 10,000 quotas: what the command that shows them takes, and a scrape of the controller.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_e2e::metrics::Samples;
use tokio::process::Command;

use crate::fake_api::{FakeApiServer, Size};
use crate::histogram::Histogram;
use crate::kernel;
use crate::report::{Run, median, ms, say};
use crate::scale::controller::{Controller, quiet};

const STARTED: Duration = Duration::from_secs(600);
const QUIET: Duration = Duration::from_secs(60);
/// Between two looks at how much memory a command has: at most of its last moment nothing is known.
const LOOKS: Duration = Duration::from_millis(2);
/// How long the gate's state was locked each time.
const HELD: (&str, &[(&str, &str)]) = ("sluice_gate_lock_hold_seconds", &[("by", "scrape")]);

/// Beside a simulated API server, once the controller has written the status of every quota.
pub(super) async fn measure(run: &Run) -> anyhow::Result<Value> {
    let size = run.either(
        Size { namespaces: 200, pods: 600, waiting: 100 },
        Size { namespaces: 10_000, pods: 30_000, waiting: 5_000 },
    );
    say(&format!("why: {} quotas", size.namespaces));
    let server = FakeApiServer::start(size).await?;
    let controller = Controller::start(&server, &[])?;
    controller.settled(&server, STARTED, "the status of every quota to be written").await?;
    quiet(&server, QUIET).await?;
    // The first one makes the series of locks, and has the memory that the others use again.
    scrape(&controller).await?;
    let (mut times, mut bytes, mut last) = (Vec::new(), 0, None);
    for _ in 0..run.either(2, 10) {
        let (took, text) = scrape(&controller).await?;
        times.push(took);
        bytes = text.len();
        last = Some(text);
    }
    let samples = Samples::parse(&last.context("no scrape")?)?;
    let held = Histogram::read(&samples, HELD.0, HELD.1)?;
    say(&format!("why: sluice top of {} quotas", size.namespaces));
    let files = tempfile::tempdir()?;
    let kubeconfig = server.write_kubeconfig(files.path())?;
    let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..run.either(1, 5) {
        let args: [OsString; 4] =
            ["top".into(), "--all-namespaces".into(), "--kubeconfig".into(), kubeconfig.clone().into()];
        let (took, peak, lines) = command(&args).await?;
        ensure!(lines > size.namespaces, "it shows {lines} lines");
        seconds.push(took.as_secs_f64());
        peaks.push(peak);
    }
    #[allow(clippy::cast_precision_loss, reason = "a few million")]
    let scrape_mib = bytes as f64 / f64::from(1 << 20);
    Ok(json!({
        "quotas": size.namespaces, "pods": size.pods, "top_s": median(&mut seconds),
        "top_peak_mib": peaks.into_iter().fold(0.0, f64::max), "scrape_mib": scrape_mib,
        "scrape_ms": median(&mut times), "scrape_locks": held.count(),
        "scrape_lock_p99_ms": held.quantile_ms(0.99), "scrape_lock_max_ms": held.bound_ms(1.0),
        "scrape_locks_by": held.json(),
    }))
}

/// How long one takes in milliseconds, and its text.
async fn scrape(controller: &Controller) -> anyhow::Result<(f64, String)> {
    let begin = Instant::now();
    let text = controller.scrape().await?;
    Ok((ms(begin.elapsed()), text))
}

/// Runs a command of Sluice: how long it takes, the most that it has in memory in MiB, and how many lines it prints.
async fn command(args: &[OsString]) -> anyhow::Result<(Duration, f64, u64)> {
    let program = sluice_e2e::build::sluice()?;
    let begin = Instant::now();
    let child = Command::new(program).args(args).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let child = child.context("starting the command")?;
    let pid = child.id().context("the command has ended at once")?;
    let peak = async {
        let mut peak = 0.0_f64;
        // One that has ended and is not waited for has no memory any more.
        while let Ok(mib) = kernel::memory_mib(pid, "VmHWM") {
            peak = peak.max(mib);
            tokio::time::sleep(LOOKS).await;
        }
        peak
    };
    let (output, peak) = tokio::join!(child.wait_with_output(), peak);
    let (output, took) = (output.context("waiting for the command")?, begin.elapsed());
    ensure!(output.status.success(), "the command ended with {}", output.status);
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    Ok((took, peak, u64::try_from(lines).unwrap_or(u64::MAX)))
}
