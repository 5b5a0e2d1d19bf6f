//! One isolated control plane.

mod access;
mod audit;
mod components;
mod kubevirt;
mod nodes;
mod objects;
mod start;
mod state;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use access::{Identity, TestNamespace};
pub use components::Component;
pub use state::State;

use crate::artifacts::say;
use crate::pki::Pki;
use crate::program::{Keeper, Program, ProgramSpec};
use crate::relay::Relay;
use crate::virt_handler::SimulatedVirtHandler;
use components::{Plan, Programs};

/// Deadline of whatever a control plane does by itself: of its start, which takes three seconds on two idle cores, and of
/// what it makes of an object. The machine may be busy with other control planes.
const START: Duration = Duration::from_secs(120);

/// What a bed consists of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BedOptions {
    /// Simulated nodes and kubelets.
    pub kwok: bool,
    /// Audit log in the bed's directory (see [`Bed::audit_events`]).
    pub audit: bool,
    /// kube-controller-manager: service accounts, native quotas, garbage collection, namespaces.
    pub controller_manager: bool,
    /// kube-scheduler.
    pub scheduler: bool,
    /// KubeVirt: its kinds, virt-controller and simulated virt-handlers (see [`Bed::kubevirt`]).
    #[serde(default)]
    pub kubevirt: bool,
    /// Another API server on the same etcd, with which virt-controller speaks; all other clients speak with the first.
    #[serde(default)]
    pub second_api_server: bool,
    /// The second API server reaches etcd through a relay (see [`Bed::hold_watches`]).
    #[serde(default)]
    pub etcd_relay: bool,
    /// etcd and API server listen on the loopback address of IPv6 alone, and Services have addresses of IPv6. Without KWOK,
    /// a second API server and KubeVirt.
    #[serde(default)]
    pub ipv6: bool,
    /// The minor version of Kubernetes, such as `1.34`; `None`: the one that the environment selects.
    #[serde(default)]
    pub kubernetes: Option<String>,
    /// Additional flags of the API server.
    pub api_server_args: Vec<String>,
    /// Additional flags of the second API server, after those.
    #[serde(default)]
    pub second_api_server_args: Vec<String>,
    /// Additional flags of the controller-manager.
    pub controller_manager_args: Vec<String>,
}

impl Default for BedOptions {
    fn default() -> Self {
        Self {
            kwok: true,
            audit: true,
            controller_manager: true,
            scheduler: true,
            kubevirt: false,
            second_api_server: false,
            etcd_relay: false,
            ipv6: false,
            kubernetes: None,
            api_server_args: Vec::new(),
            second_api_server_args: Vec::new(),
            controller_manager_args: Vec::new(),
        }
    }
}

impl BedOptions {
    /// The address that everything listens on.
    #[must_use]
    pub const fn loopback(&self) -> IpAddr {
        if self.ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }

    /// As URLs name it.
    pub(crate) fn host(&self, port: u16) -> String {
        SocketAddr::new(self.loopback(), port).to_string()
    }
}

/// Loopback ports of a bed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ports {
    etcd: u16,
    peer: u16,
    server: u16,
    #[serde(default)]
    second: u16,
    #[serde(default)]
    relay: u16,
}

/// A running control plane. Dropping it stops everything and removes its directory.
///
/// If the thread that drops it is panicking, logs and audit log are kept and their place is
/// printed. Nothing in it belongs to a tokio runtime, so tests with runtimes of their own may
/// share one (see [`Bed::shared`]); clients are made anew by each call for the same reason.
pub struct Bed {
    dir: PathBuf,
    options: BedOptions,
    ports: Ports,
    pki: Pki,
    programs: Mutex<Programs>,
    admin: Identity,
    running: Mutex<BTreeMap<Component, Program>>,
    virt_handler: Mutex<Option<SimulatedVirtHandler>>,
    launcher_image: Mutex<String>,
    relay: OnceLock<Relay>,
    /// Removes the directory when this process ends; `None` for a persistent bed.
    directory: Option<Keeper>,
    keep: AtomicBool,
    /// Time from nothing to ready.
    ready_after: Duration,
    counter: AtomicU64,
}

/// Where the kubeconfig of a name is.
fn kubeconfig_path(dir: &Path, name: &str) -> PathBuf {
    dir.join("kubeconfigs").join(format!("{name}.kubeconfig"))
}

impl Bed {
    /// Administrator (group `system:masters`).
    ///
    /// # Errors
    /// When no client can be made; needs a tokio runtime.
    pub fn admin(&self) -> anyhow::Result<kube::Client> {
        self.admin.client()
    }

    /// The administrator's identity.
    #[must_use]
    pub const fn admin_identity(&self) -> &Identity {
        &self.admin
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> &Path {
        self.admin.kubeconfig()
    }

    /// The API server's address, `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn server_url(&self) -> String {
        format!("https://{}", self.options.host(self.ports.server))
    }

    /// The address that everything listens on.
    #[must_use]
    pub const fn loopback(&self) -> IpAddr {
        self.options.loopback()
    }

    /// See [`BedOptions::kubernetes`].
    #[must_use]
    pub fn kubernetes(&self) -> Option<&str> {
        self.options.kubernetes.as_deref()
    }

    /// The address of the second API server (see [`BedOptions::second_api_server`]).
    #[must_use]
    pub fn second_server_url(&self) -> String {
        format!("https://{}", self.options.host(self.ports.second))
    }

    /// The bed's CA certificate, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// A serving certificate and its key (PEM) of the bed's CA, for DNS names and IP addresses.
    ///
    /// # Errors
    /// When a name cannot be part of a certificate.
    pub fn serving_certificate(&self, names: &[&str]) -> anyhow::Result<(String, String)> {
        let signed = self.pki.server(names)?;
        Ok((signed.cert, signed.key))
    }

    /// The bed's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How long the start took until everything answered.
    #[must_use]
    pub const fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Keeps the directory (logs, audit log) when the bed ends, and prints where it is.
    pub fn keep(&self) {
        if !self.keep.swap(true, Ordering::SeqCst) {
            if let Some(directory) = &self.directory {
                directory.send("keep");
            }
            say(&format!("logs and audit log are kept in {}", self.dir.join("logs").display()));
        }
    }

    /// Starts a program of a test with its log in the bed's directory; it ends with the test.
    ///
    /// # Errors
    /// When the program does not exist or cannot be started.
    pub fn program<A: Into<std::ffi::OsString>>(
        &self,
        name: &str,
        exe: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> anyhow::Result<Program> {
        Program::spawn(ProgramSpec {
            name: name.to_owned(),
            exe: exe.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            log: self.dir.join("logs").join(format!("{name}.log")),
            grace: Duration::from_secs(1),
            hold: Some(self.dir.join("keepers.lock")),
        })
    }

    /// SIGSTOP to a component; returns when it has stopped.
    pub fn pause(&self, component: Component) {
        if let Some(program) = self.running().get(&component) {
            program.pause();
        }
    }

    /// SIGCONT to a component.
    pub fn resume(&self, component: Component) {
        if let Some(program) = self.running().get(&component) {
            program.resume();
        }
    }

    /// Lets the second API server learn nothing more of what becomes of these keys of etcd, until
    /// [`Self::release_watches`]. It reads and writes them as ever. Needs [`BedOptions::etcd_relay`].
    pub fn hold_watches(&self, keys: &str) {
        if let Some(relay) = self.relay.get() {
            relay.hold(Some(keys.to_owned()));
        }
    }

    /// Lets the second API server learn what it missed.
    pub fn release_watches(&self) {
        if let Some(relay) = self.relay.get() {
            relay.hold(None);
        }
    }

    /// The processes of the bed, to check that they run or are gone.
    #[must_use]
    pub fn processes(&self) -> BTreeMap<Component, crate::process::ProcessId> {
        self.running().iter().map(|(component, program)| (*component, program.process().clone())).collect()
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<Component, Program>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn virt_handler(&self) -> MutexGuard<'_, Option<SimulatedVirtHandler>> {
        self.virt_handler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launcher_image(&self) -> MutexGuard<'_, String> {
        self.launcher_image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of the components that are started next.
    fn programs(&self) -> Programs {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn plan(&self) -> Plan<'_> {
        Plan {
            dir: &self.dir,
            options: &self.options,
            ports: &self.ports,
            pki: &self.pki,
            programs: self.programs(),
            launcher_image: self.launcher_image().clone(),
        }
    }

    /// A name that no other call and no other run of this bed gets.
    fn fresh_name(&self, prefix: &str) -> String {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let digits = format!("{:08x}", crate::ports::random() & 0xffff_ffff);
        format!("{prefix}-{count}-{digits}")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // It would only complain about the API server that ends.
        drop(self.virt_handler().take());
        let Some(directory) = self.directory.take() else { return };
        let failed = std::thread::panicking();
        if failed || std::env::var_os("SLUICE_KEEP").is_some() {
            self.directory = Some(directory);
            self.keep();
            return self.stop_all(failed);
        }
        self.stop_all(false);
        directory.close();
        directory.join(Duration::from_secs(10));
    }
}

impl Bed {
    /// The API server goes before etcd, for which it would wait; a graceful end flushes its log.
    fn stop_all(&self, gracefully: bool) {
        let mut running = std::mem::take(&mut *self.running());
        let last = [Component::ApiServer, Component::SecondApiServer, Component::Etcd]
            .map(|component| running.remove(&component));
        if !gracefully {
            running.values().for_each(Program::kill);
            last.iter().flatten().for_each(Program::kill);
        }
        drop(running);
        last.into_iter().flatten().for_each(drop);
    }
}
