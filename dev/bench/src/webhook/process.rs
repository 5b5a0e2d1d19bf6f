//! The webhook process, pinned to a core of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sluice_api::names;
use sluice_testbed::{Program, ports, wait};

use super::load::{self, Measured, Target};
use super::reviews::Body;
use crate::fake_api::{FakeApiServer, Size};
use crate::kernel;
use crate::report::tail;

/// Which cores the server and the client run on.
#[derive(Debug)]
pub(super) struct Cores {
    /// The server's, if it can be pinned.
    server: Option<usize>,
    client: String,
}

impl Cores {
    /// Gives the last core to the server and keeps this process off it.
    pub(super) fn split() -> anyhow::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let pinning = Command::new("taskset").arg("--version").stdout(Stdio::null()).status().is_ok();
        if count < 2 || !pinning {
            return Ok(Self { server: None, client: "any".to_owned() });
        }
        let client = if count == 2 { "0".to_owned() } else { format!("0-{}", count - 2) };
        let own = std::process::id().to_string();
        let status =
            Command::new("taskset").args(["-a", "-c", "-p", &client, &own]).stdout(Stdio::null()).status();
        ensure!(status.context("running taskset")?.success(), "taskset could not pin this process");
        Ok(Self { server: Some(count - 1), client })
    }

    pub(super) fn describe(&self) -> String {
        match self.server {
            Some(core) => {
                format!("webhook pinned to core {core} (one runtime thread), client to core {}", self.client)
            }
            None => "not pinned: taskset is missing or there is one core only".to_owned(),
        }
    }

    fn command(&self, program: PathBuf) -> (PathBuf, Vec<OsString>) {
        let Some(core) = self.server else { return (program, Vec::new()) };
        let args = vec!["-c".into(), core.to_string().into(), program.into()];
        (find("taskset"), args)
    }
}

/// A program by its name in `PATH`.
fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| name.into())
}

/// A webhook that serves. It ends when this is dropped or when this process ends.
pub(super) struct Server {
    program: Program,
    pub(super) target: Target,
    pub(super) admin: String,
    _api_server: FakeApiServer,
    _files: tempfile::TempDir,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub(super) async fn start(cores: &Cores) -> anyhow::Result<Self> {
        let files = tempfile::tempdir().context("making a directory for the webhook")?;
        let (cert, key) = (files.path().join("tls.crt"), files.path().join("tls.key"));
        let signed = rcgen::generate_simple_self_signed([load::SERVER_NAME.to_owned()])?;
        std::fs::write(&cert, signed.cert.pem())?;
        std::fs::write(&key, signed.signing_key.serialize_pem())?;
        // Verdicts on pods need no objects. But the webhook asks for a version before it serves, and would try its watches
        // again and again if they were not answered.
        let api_server = FakeApiServer::start(Size::default()).await?;
        let kubeconfig = api_server.write_kubeconfig(files.path())?;
        let (address, admin) =
            (format!("127.0.0.1:{}", ports::free()?), format!("127.0.0.1:{}", ports::free()?));
        let (exe, mut args) = cores.command(sluice_e2e::build::sluice()?);
        args.extend(["webhook".into(), "--metrics-plain".into(), "--metrics-cache=0s".into()]);
        args.extend(["--kubeconfig".into(), kubeconfig.into()]);
        args.extend(["--tls-cert-file".into(), cert.into(), "--tls-key-file".into(), key.into()]);
        args.extend([
            "--listen".into(),
            address.clone().into(),
            "--admin-listen".into(),
            admin.clone().into(),
        ]);
        let log = files.path().join("webhook.log");
        let env: [(OsString, OsString); 0] = [];
        let program = Program::start("webhook", exe, args, env, log)?;
        let probe = || async {
            let (status, _) = sluice_e2e::probe::get(&admin, names::PATH_READYZ).await.ok()?;
            (status == 200).then_some(())
        };
        let ready = wait::eventually(Duration::from_secs(20), probe, "the webhook to be ready").await;
        ready.with_context(|| format!("log of the webhook:\n{}", program.log()))?;
        let target = Target::new(&address, signed.cert.der())?;
        Ok(Self { program, target, admin, _api_server: api_server, _files: files })
    }

    pub(super) async fn load(
        &self,
        bodies: &[Body],
        rate: u32,
        connections: u32,
        time: Duration,
    ) -> anyhow::Result<Measured> {
        self.load_from(&self.target, bodies, rate, connections, time).await
    }

    /// As [`Self::load`], as another client.
    pub(super) async fn load_from(
        &self,
        target: &Target,
        bodies: &[Body],
        rate: u32,
        connections: u32,
        time: Duration,
    ) -> anyhow::Result<Measured> {
        let measured = load::run(target, bodies, rate, connections, time).await;
        measured.with_context(|| format!("log of the webhook ends with:\n{}", tail(&self.program.log())))
    }

    /// What the process has in memory now, in MiB.
    pub(super) fn rss_mib(&self) -> anyhow::Result<f64> {
        kernel::memory_mib(self.program.pid(), "VmRSS")
    }

    /// CPU time the process has used.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        kernel::cpu(self.program.pid())
    }
}
