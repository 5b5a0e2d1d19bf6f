//! The controller process beside the fake API server.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sluice_api::names;
use sluice_e2e::metrics::Samples;
use sluice_e2e::probe::get;
use sluice_testbed::{Program, ports, wait};

use crate::fake_api::{FakeApiServer, World};
use crate::histogram::Histogram;
use crate::kernel;
use crate::report::tail;

/// How long the gate's state was locked each time.
const HELD: &str = "sluice_gate_lock_hold_seconds";

/// A controller that has written nothing for so long has nothing more to write.
const QUIET: Duration = Duration::from_secs(1);

/// A controller that runs. It ends when this is dropped or when this process ends.
pub struct Controller {
    program: Program,
    admin: String,
    _files: tempfile::TempDir,
}

/// Counts at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub at: Instant,
    /// CPU time of the controller.
    pub cpu: Duration,
    /// Events of pods that the controller's watch took, without those that releases caused.
    pub delivered: u64,
    pub releases: u64,
    pub quota_writes: usize,
}

impl Controller {
    /// Starts it, with further arguments; it has not listed anything yet.
    pub fn start(server: &FakeApiServer, further: &[String]) -> anyhow::Result<Self> {
        let files = tempfile::tempdir().context("making a directory for the controller")?;
        let kubeconfig = server.write_kubeconfig(files.path())?;
        let admin = format!("127.0.0.1:{}", ports::free()?);
        let mut args: Vec<OsString> = vec!["controller".into(), "--kubeconfig".into(), kubeconfig.into()];
        args.extend(["--admin-listen".into(), admin.clone().into()]);
        args.extend(["--growth-listen".into(), format!("127.0.0.1:{}", ports::free()?).into()]);
        args.extend(["--metrics-plain".into(), "--metrics-cache=0s".into()]);
        args.extend(further.iter().map(Into::into));
        let env = [(names::ALLOCATOR_VARIABLE, names::ALLOCATOR_SETTINGS)];
        let log = files.path().join("controller.log");
        let program = Program::start("controller", sluice_e2e::build::sluice()?, args, env, log)?;
        Ok(Self { program, admin, _files: files })
    }

    /// Waits until every quota's status is right and no pod waits for room that is there.
    pub async fn settled(&self, server: &FakeApiServer, time: Duration, what: &str) -> anyhow::Result<()> {
        let probe = || async {
            if !self.program.is_running() {
                return Some(false);
            }
            server.read(World::is_settled).then_some(true)
        };
        let log = || format!("log of the controller ends with:\n{}", tail(&self.program.log()));
        let runs = wait::eventually(time, probe, what).await.with_context(log)?;
        ensure!(runs, "the controller ended; {}", log());
        Ok(())
    }

    pub fn counts(&self, server: &FakeApiServer) -> anyhow::Result<Counts> {
        let cpu = kernel::cpu(self.program.pid())?;
        let (releases, quota_writes) = server.read(|world| (world.releases(), world.quota_writes()));
        Ok(Counts { at: Instant::now(), cpu, delivered: server.delivered(), releases, quota_writes })
    }

    /// How long the gate's state was locked so far: for decisions, and for events of watches.
    pub async fn held(&self) -> anyhow::Result<[Histogram; 2]> {
        let samples = self.samples().await?;
        let by = |what| Histogram::read(&samples, HELD, &[("by", what)]);
        Ok([by("plan")?, by("watch")?])
    }

    /// Its metrics. At first that takes memory, for those of all quotas are written.
    pub async fn samples(&self) -> anyhow::Result<Samples> {
        Samples::of(&self.admin).await
    }

    /// The text of its metrics.
    pub async fn scrape(&self) -> anyhow::Result<String> {
        let (code, text) = get(&self.admin, names::PATH_METRICS).await?;
        ensure!(code == 200, "the metrics answered {code}");
        Ok(text)
    }

    /// What it has written so far.
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// What it has in memory now, in MiB.
    pub fn rss_mib(&self) -> anyhow::Result<f64> {
        kernel::memory_mib(self.program.pid(), "VmRSS")
    }

    /// The most that it had in memory so far, in MiB.
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        kernel::memory_mib(self.program.pid(), "VmHWM")
    }
}

/// Waits until the controller writes nothing more but its lease: events come after what they tell of.
pub async fn quiet(server: &FakeApiServer, time: Duration) -> anyhow::Result<()> {
    let mut last = (server.read(World::writes), Instant::now());
    let probe = || {
        let writes = server.read(World::writes);
        if writes != last.0 {
            last = (writes, Instant::now());
        }
        let is_quiet = last.1.elapsed() >= QUIET;
        async move { is_quiet.then_some(()) }
    };
    wait::eventually(time, probe, "the controller to write nothing more").await
}
