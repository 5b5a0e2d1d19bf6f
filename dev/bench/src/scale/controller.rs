//! The controller process beside the fake API server.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sluice_api::names;
use sluice_e2e::metrics::Samples;
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
pub(super) struct Controller {
    program: Program,
    admin: String,
    _files: tempfile::TempDir,
}

/// Counts at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) at: Instant,
    /// CPU time of the controller.
    pub(super) cpu: Duration,
    /// Events of pods that the controller's watch took, without those that releases caused.
    pub(super) delivered: u64,
    pub(super) releases: u64,
    pub(super) quota_writes: usize,
}

impl Controller {
    /// Starts it; it has not listed anything yet.
    pub(super) fn start(server: &FakeApiServer) -> anyhow::Result<Self> {
        let files = tempfile::tempdir().context("making a directory for the controller")?;
        let kubeconfig = server.write_kubeconfig(files.path())?;
        let admin = format!("127.0.0.1:{}", ports::free()?);
        let mut args: Vec<OsString> = vec!["controller".into(), "--kubeconfig".into(), kubeconfig.into()];
        args.extend(["--admin-listen".into(), admin.clone().into()]);
        args.extend(["--growth-listen".into(), format!("127.0.0.1:{}", ports::free()?).into()]);
        args.extend(["--metrics-plain".into(), "--metrics-cache=0s".into()]);
        let env = [(names::ALLOCATOR_VARIABLE, names::ALLOCATOR_SETTINGS)];
        let log = files.path().join("controller.log");
        let program = Program::start("controller", sluice_e2e::build::sluice()?, args, env, log)?;
        Ok(Self { program, admin, _files: files })
    }

    /// Waits until every quota's status is right and no pod waits for room that is there.
    pub(super) async fn settled(
        &self,
        server: &FakeApiServer,
        time: Duration,
        what: &str,
    ) -> anyhow::Result<()> {
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

    pub(super) fn counts(&self, server: &FakeApiServer) -> anyhow::Result<Counts> {
        let cpu = kernel::cpu(self.program.pid())?;
        let (releases, quota_writes) = server.read(|world| (world.releases(), world.quota_writes()));
        Ok(Counts { at: Instant::now(), cpu, delivered: server.delivered(), releases, quota_writes })
    }

    /// How long the gate's state was locked so far: for decisions, and for events of watches.
    pub(super) async fn held(&self) -> anyhow::Result<[Histogram; 2]> {
        let samples = Samples::of(&self.admin).await?;
        let by = |what| Histogram::read(&samples, HELD, &[("by", what)]);
        Ok([by("plan")?, by("watch")?])
    }

    /// The most that it had in memory so far, in MiB.
    pub(super) fn peak_mib(&self) -> anyhow::Result<f64> {
        kernel::memory_mib(self.program.pid(), "VmHWM")
    }
}

/// Waits until the controller writes nothing more but its lease: events come after what they tell of.
pub(super) async fn quiet(server: &FakeApiServer, time: Duration) -> anyhow::Result<()> {
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
