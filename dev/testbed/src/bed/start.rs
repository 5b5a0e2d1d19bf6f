//! Starting and restarting.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::OnceCell;

use super::state::State;
use super::{Bed, BedOptions, Component, Identity, Plan, Ports, Programs, START};
use crate::kubeconfig::{self, Credential};
use crate::pki::Pki;
use crate::program::{Keeper, Program, start_detached};
use crate::relay::Relay;
use crate::{artifacts, ports, wait};

impl Bed {
    /// Starts a control plane; returns when it answers and its service accounts exist.
    ///
    /// # Errors
    /// When the programs cannot be built or do not become ready; the message carries log lines.
    pub async fn start(options: BedOptions) -> anyhow::Result<Self> {
        let programs = built(&options).await?;
        for _ in 0..4 {
            let parent = std::env::var_os("SLUICE_BED_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
            fs::create_dir_all(&parent).with_context(|| format!("creating {}", parent.display()))?;
            let dir = tempfile::Builder::new().prefix("sluice-bed-").tempdir_in(&parent)?.keep();
            let bed = Self::prepare(dir, options.clone(), programs.clone(), true)?;
            if let Some(bed) = bed.launch(None).await? {
                return Ok(bed);
            }
        }
        bail!("four times in a row another program took a port chosen for the test bed")
    }

    /// Starts a control plane that lasts as long as this process, for tests that share it.
    ///
    /// Any panic in the process keeps its logs, for it is not known whose they are.
    ///
    /// # Errors
    /// As [`Bed::start`].
    pub async fn start_shared(options: BedOptions) -> anyhow::Result<&'static Self> {
        // The panic hook is taken and set again: one bed at a time.
        static HOOK: Mutex<()> = Mutex::new(());
        let bed: &'static Self = Box::leak(Box::new(Self::start(options).await?));
        let _turn = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            bed.keep();
            previous(info);
        }));
        Ok(bed)
    }

    /// The bed that all tests of this process share, started by the first who asks.
    ///
    /// # Errors
    /// As [`Bed::start`].
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static BED: OnceCell<&'static Bed> = OnceCell::const_new();
        BED.get_or_try_init(|| Self::start_shared(BedOptions::default())).await.copied()
    }

    /// As [`Bed::shared`], with KubeVirt: another bed than that one.
    ///
    /// # Errors
    /// As [`Bed::start`].
    pub async fn shared_with_kubevirt() -> anyhow::Result<&'static Self> {
        static BED: OnceCell<&'static Bed> = OnceCell::const_new();
        let options = BedOptions { kubevirt: true, ..BedOptions::default() };
        BED.get_or_try_init(|| Self::start_shared(options)).await.copied()
    }

    /// Starts a control plane that survives this process; [`State::stop`] ends it.
    ///
    /// # Errors
    /// As [`Bed::start`], and when the directory exists.
    pub async fn start_persistent(dir: PathBuf, options: BedOptions) -> anyhow::Result<Self> {
        let programs = built(&options).await?;
        for _ in 0..4 {
            fs::create_dir_all(dir.parent().context("the bed's directory has no parent")?)?;
            fs::create_dir(&dir)
                .with_context(|| format!("creating the bed's directory {}", dir.display()))?;
            let bed = Self::prepare(dir.clone(), options.clone(), programs.clone(), false)?;
            let mut state = State::new(&bed);
            let launched = bed.launch(Some(&mut state)).await;
            if let Ok(Some(bed)) = launched {
                return Ok(bed);
            }
            state.stop().await?;
            launched?;
        }
        bail!("four times in a row another program took a port chosen for the test bed")
    }

    /// The control plane of a record, for a process that has not started it. Dropping it stops nothing but what this process
    /// has started there.
    ///
    /// # Errors
    /// When its programs or its authority are not there.
    pub async fn attach(state: &State) -> anyhow::Result<Self> {
        let programs = built(&state.options).await?;
        let pki = Pki::open(state.dir.join("pki"))?;
        Self::assemble(state.dir.clone(), state.options.clone(), state.ports.clone(), pki, programs, false)
    }

    fn prepare(dir: PathBuf, options: BedOptions, programs: Programs, keeper: bool) -> anyhow::Result<Self> {
        for name in ["logs", "kubeconfigs"] {
            fs::create_dir(dir.join(name)).context("creating the bed's directories")?;
        }
        let pki = Pki::create(dir.join("pki"))?;
        fs::write(dir.join("stages.yaml"), include_str!("stages.yaml"))?;
        fs::write(dir.join("audit-policy.yaml"), include_str!("audit-policy.yaml"))?;
        let [etcd, peer, server, second] = [ports::free()?, ports::free()?, ports::free()?, ports::free()?];
        let ports = Ports { etcd, peer, server, second, relay: ports::free()? };
        Self::assemble(dir, options, ports, pki, programs, keeper)
    }

    fn assemble(
        dir: PathBuf,
        options: BedOptions,
        ports: Ports,
        pki: Pki,
        programs: Programs,
        keeper: bool,
    ) -> anyhow::Result<Self> {
        let server = format!("https://{}", options.host(ports.server));
        let credential = Credential::Certificate(pki.client("admin", &["system:masters"])?);
        let admin = Identity::new(&dir, &server, pki.ca_pem(), "admin", &credential, "default")?;
        let hold = dir.join("keepers.lock");
        let directory = keeper
            .then(|| {
                Keeper::start(&["--hold".into(), hold.into(), "--remove".into(), dir.clone().into()], &[])
            })
            .transpose()?
            .map(|(keeper, _)| keeper);
        Ok(Self {
            dir,
            options,
            ports,
            pki,
            programs: Mutex::new(programs),
            admin,
            running: Mutex::default(),
            virt_handler: Mutex::default(),
            launcher_image: Mutex::new("launcher".to_owned()),
            relay: OnceLock::new(),
            directory,
            keep: false.into(),
            ready_after: Duration::ZERO,
            counter: 0.into(),
        })
    }

    /// Starts all components; `None` when a port was taken by another process meanwhile.
    async fn launch(mut self, state: Option<&mut State>) -> anyhow::Result<Option<Self>> {
        let started = Instant::now();
        match self.launch_components(state).await {
            Ok(()) => {
                self.ready_after = started.elapsed();
                Ok(Some(self))
            }
            Err(_) if self.port_was_taken() => Ok(None),
            Err(error) => {
                let logs = self.log_tails();
                Err(error.context(format!("the test bed did not start\n{logs}")))
            }
        }
    }

    async fn launch_components(&self, mut state: Option<&mut State>) -> anyhow::Result<()> {
        let end = Instant::now() + START;
        self.launch_one(Component::Etcd, state.as_deref_mut())?;
        self.until(end, Component::Etcd, async || self.etcd_ready().await.then_some(())).await?;
        self.launch_one(Component::ApiServer, state.as_deref_mut())?;
        self.api_server_ready(end).await?;
        if self.options.etcd_relay {
            drop(self.relay.set(Relay::start(self.ports.relay, self.ports.etcd)?));
        }
        if self.options.second_api_server {
            self.launch_one(Component::SecondApiServer, state.as_deref_mut())?;
            self.server_ready(end, Component::SecondApiServer, &self.second_server_url()).await?;
        }
        let rest = [
            (self.options.controller_manager, Component::ControllerManager),
            (self.options.scheduler, Component::Scheduler),
            (self.options.kwok, Component::Kwok),
        ];
        for (wanted, component) in rest {
            if wanted {
                self.launch_one(component, state.as_deref_mut())?;
            }
        }
        if self.options.kubevirt {
            self.install_kubevirt().await.context("installing KubeVirt")?;
            self.launch_one(Component::VirtController, state)?;
        }
        if self.options.controller_manager {
            let accounts: Api<ServiceAccount> = Api::default_namespaced(self.admin()?);
            let what = "the controller-manager to make the default service account";
            wait::wait_for(&accounts, "default", START, what, |account| account.is_some()).await?;
        }
        Ok(())
    }

    fn launch_one(&self, component: Component, state: Option<&mut State>) -> anyhow::Result<()> {
        if let Some((user, group)) = component.user() {
            let credential = Credential::Certificate(self.pki.client(user, &[group])?);
            let path = super::kubeconfig_path(&self.dir, component.name());
            kubeconfig::write(&path, &self.server_url(), self.ca_pem(), credential.auth_info(), None)?;
        }
        let plan: Plan<'_> = self.plan();
        let spec = plan.spec(component);
        if let Some(state) = state {
            return state.record(component, start_detached(spec)?);
        }
        let program = Program::spawn(spec)?;
        self.running().insert(component, program);
        Ok(())
    }

    async fn api_server_ready(&self, end: Instant) -> anyhow::Result<()> {
        self.server_ready(end, Component::ApiServer, &self.server_url()).await
    }

    async fn server_ready(&self, end: Instant, component: Component, url: &str) -> anyhow::Result<()> {
        let mut config = self.admin.config();
        config.default_retry = false;
        config.cluster_url = url.parse().context("address of an API server")?;
        let client = kube::Client::try_from(config)?;
        self.until(end, component, async || {
            let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
            client.request_text(request).await.ok().map(|_| ())
        })
        .await
    }

    /// Tries until the probe succeeds, unless the component ends before.
    async fn until(
        &self,
        end: Instant,
        component: Component,
        mut probe: impl AsyncFnMut() -> Option<()>,
    ) -> anyhow::Result<()> {
        while Instant::now() < end {
            if let Ok(Some(())) = tokio::time::timeout(Duration::from_secs(5), probe()).await {
                return Ok(());
            }
            if self.running().get(&component).is_some_and(|program| !program.is_running()) {
                bail!("{} ended at once", component.name());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("{} was not ready in {START:?}", component.name())
    }

    fn port_was_taken(&self) -> bool {
        [Component::Etcd, Component::ApiServer, Component::SecondApiServer].into_iter().any(|component| {
            let log = fs::read_to_string(self.plan().spec(component).log).unwrap_or_default();
            log.contains("address already in use")
        })
    }

    fn log_tails(&self) -> String {
        let mut text = String::new();
        for component in [Component::Etcd, Component::ApiServer, Component::ControllerManager] {
            let log = fs::read_to_string(self.plan().spec(component).log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n");
            text.push_str(&format!("--- {}\n{tail}\n", component.name()));
        }
        text
    }

    /// Stops the API server as a crash would (SIGKILL).
    pub fn stop_api_server(&self) {
        self.stop(Component::ApiServer);
    }

    /// Starts the API server again, on the same port; returns when it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        self.start_component(Component::ApiServer)?;
        self.api_server_ready(Instant::now() + START).await
    }

    /// Stops and starts the API server.
    ///
    /// # Errors
    /// When it does not become ready again.
    pub async fn restart_api_server(&self) -> anyhow::Result<()> {
        self.stop_api_server();
        self.start_api_server().await
    }

    /// Stops an API server and starts that of another minor version of Kubernetes, such as `1.36`, on the same etcd and
    /// port, as an upgrade of a cluster begins. Other components stay as they are; started again they are of that version.
    ///
    /// # Errors
    /// When its program cannot be built, or it does not become ready.
    pub async fn upgrade(&self, server: Component, version: &str) -> anyhow::Result<()> {
        let url = match server {
            Component::ApiServer => self.server_url(),
            Component::SecondApiServer => self.second_server_url(),
            other => bail!("{} is no API server", other.name()),
        };
        let options = BedOptions { kubernetes: Some(version.to_owned()), ..self.options.clone() };
        self.use_programs(&options).await?;
        self.stop(server);
        self.start_component(server)?;
        self.server_ready(Instant::now() + START, server, &url).await
    }

    /// Builds the programs that these options ask for; what is started from then on is one of them.
    pub(super) async fn use_programs(&self, options: &BedOptions) -> anyhow::Result<()> {
        *self.programs.lock().unwrap_or_else(PoisonError::into_inner) = built(options).await?;
        Ok(())
    }

    /// Stops a component with SIGKILL.
    pub fn stop(&self, component: Component) {
        let program = self.running().remove(&component);
        if let Some(program) = program {
            program.kill();
        }
    }

    /// Starts a component that was stopped; does not wait until it is ready.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn start_component(&self, component: Component) -> anyhow::Result<()> {
        self.launch_one(component, None)
    }
}

/// Builds what is not built yet; blocking, so away from the runtime's threads.
async fn built(options: &BedOptions) -> anyhow::Result<Programs> {
    static KUBERNETES: OnceLock<PathBuf> = OnceLock::new();
    static KWOK: OnceLock<PathBuf> = OnceLock::new();
    static KUBEVIRT: OnceLock<PathBuf> = OnceLock::new();
    let (kwok, kubevirt, version) = (options.kwok, options.kubevirt, options.kubernetes.clone());
    let find = move || {
        let once = |cell: &OnceLock<PathBuf>, find: fn() -> anyhow::Result<PathBuf>| match cell.get() {
            Some(path) => Ok(path.clone()),
            None => find().inspect(|path| drop(cell.set(path.clone()))),
        };
        let kubernetes = match version {
            Some(version) => artifacts::kubernetes_of(&version)?,
            None => once(&KUBERNETES, artifacts::kubernetes)?,
        };
        let kwok = kwok.then(|| once(&KWOK, artifacts::kwok)).transpose()?;
        let kubevirt = kubevirt.then(|| once(&KUBEVIRT, artifacts::kubevirt)).transpose()?;
        Ok(Programs { kubernetes, kwok, kubevirt })
    };
    tokio::task::spawn_blocking(find).await.context("building the test bed's programs")?
}

impl Bed {
    /// etcd answers `/readyz` in plain HTTP on its client port.
    async fn etcd_ready(&self) -> bool {
        let address = (self.loopback(), self.ports.etcd);
        let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { return false };
        let mut answer = String::new();
        let request = b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.is_ok()
            && stream.read_to_string(&mut answer).await.is_ok()
            && answer.lines().next().is_some_and(|line| line.contains(" 200 "))
    }
}
