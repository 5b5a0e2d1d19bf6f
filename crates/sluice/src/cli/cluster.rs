//! Which cluster is meant, and by whose rights: flags as kubectl has them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap_complete::engine::ArgValueCompleter;
use jiff::SignedDuration;
use kube::Client;
use kube::config::Kubeconfig;
use sluice_runtime::client::{ClientError, ClientOptions, Server, ServerVersion, TlsOptions, connect};
use sluice_runtime::clock::ServerClock;

use super::completion::NamesOf;
use crate::progress::{Progress, Say, to_stderr};

/// Flags of kubectl that hold for all commands that read a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Namespace; without it that of the context
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(NamesOf::Namespaces))]
    pub namespace: Option<String>,
    #[command(flatten)]
    way: WayArgs,
}

/// Flags of kubectl that say which cluster, and by whose rights.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct WayArgs {
    /// Kubeconfig file; without it the environment of a pod, KUBECONFIG or the usual place
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig; without it, its current one
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(NamesOf::Contexts))]
    context: Option<String>,
    /// Cluster in the kubeconfig, in place of that of the context
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// User in the kubeconfig, in place of that of the context
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Address of the API server, in place of that of the cluster
    #[arg(short, long, value_name = "URL")]
    server: Option<http::Uri>,
    /// Name that its certificate is for, where that is not the host of the address
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Authorities that may have signed its certificate, in place of those of the cluster
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    certificate_authority: Option<PathBuf>,
    /// Do not check its certificate: whoever is on the way can read and change everything
    #[arg(long)]
    insecure_skip_tls_verify: bool,
    /// Certificate to log in with, in place of that of the user
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
    /// Token to log in with, in place of what the kubeconfig has
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// User to impersonate
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,
    /// Group to impersonate beside the user; may be given several times
    #[arg(long = "as-group", value_name = "GROUP", requires = "impersonate")]
    groups: Vec<String>,
    /// Uid to impersonate beside the user
    #[arg(long = "as-uid", value_name = "UID", requires = "impersonate")]
    uid: Option<String>,
    /// How long one request may take: 30s, 2m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    request_timeout: Duration,
}

/// A number alone is one of seconds, as kubectl has it.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u32>().map(|seconds| format!("{seconds}s"));
    let text = seconds.as_deref().unwrap_or(text);
    let read = text.parse::<SignedDuration>().ok().and_then(|lasts| Duration::try_from(lasts).ok());
    read.filter(|lasts| !lasts.is_zero()).ok_or_else(|| "write one like 30s or 2m".to_owned())
}

/// A connection, and what goes with it.
#[derive(Clone)]
pub struct Connection {
    pub client: Client,
    /// Of the flags, or of the context.
    pub namespace: String,
    pub deadline: Duration,
    /// Where it is said that something takes long.
    pub say: Say,
    clock: Arc<ServerClock>,
}

impl WayArgs {
    fn file(&self) -> Result<Kubeconfig, kube::config::KubeconfigError> {
        match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
    }

    /// kube connects anonymously where the kubeconfig does not have the user.
    fn check_user(&self) -> anyhow::Result<()> {
        let Some(user) = &self.user else { return Ok(()) };
        let file = self.file().context("could not read the kubeconfig for --user")?;
        let is_there = file.auth_infos.iter().any(|known| known.name == *user);
        anyhow::ensure!(
            is_there,
            "--user {user:?} is not in the kubeconfig: kubectl config get-users lists those that are"
        );
        Ok(())
    }

    /// How to connect as the program of this name, by whose requests `clock` is told the time.
    ///
    /// # Errors
    /// When the kubeconfig does not have the user.
    pub fn options(&self, program: &str, clock: &Arc<ServerClock>) -> anyhow::Result<ClientOptions> {
        self.check_user()?;
        let tls = TlsOptions {
            insecure: self.insecure_skip_tls_verify,
            authority: self.certificate_authority.clone(),
            certificate: self.client_certificate.clone(),
            key: self.client_key.clone(),
            server_name: self.tls_server_name.clone(),
        };
        Ok(ClientOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            user_agent: format!("{program}/{}", env!("CARGO_PKG_VERSION")),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            server: self.server.clone().map(|url| Server { url, tls_name: None }),
            tls,
            token: self.token.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.groups.clone(),
            impersonate_uid: self.uid.clone(),
            request_timeout: Some(self.request_timeout),
            clock: Some(Arc::clone(clock)),
            ..ClientOptions::default()
        })
    }
}

impl ClusterArgs {
    /// The context, for people; empty where none says which cluster it is.
    pub fn context_name(&self) -> String {
        let context = self.way.context.clone().or_else(|| self.file().ok()?.current_context);
        context.unwrap_or_default()
    }

    /// The kubeconfig.
    pub fn file(&self) -> Result<Kubeconfig, kube::config::KubeconfigError> {
        self.way.file()
    }

    /// How to connect; `clock` is told the time by each answer.
    ///
    /// # Errors
    /// When the kubeconfig does not have the user.
    pub fn options(&self, clock: &Arc<ServerClock>) -> anyhow::Result<ClientOptions> {
        // Each request has its deadline, with the time to read the answer.
        Ok(ClientOptions { request_timeout: None, ..self.way.options("sluice-cli", clock)? })
    }

    /// Connects; nothing is asked yet.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let clock = Arc::new(ServerClock::default());
        let client = connect(&self.options(&clock)?).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Connection { client, namespace, deadline: self.way.request_timeout, say: to_stderr, clock })
    }
}

impl Connection {
    /// The same, for another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// The same for a server, whose people read no standard error.
    pub fn quiet(self) -> Self {
        Self { say: |_| {}, ..self }
    }

    /// Does the work, and says every two seconds what is done.
    pub async fn saying<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        Progress::begin(self.say).while_doing(|| format!("{what} …"), work).await
    }

    /// The version of the API server.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn version(&self) -> Result<ServerVersion, ClientError> {
        self.saying("asking the API server for its version", ServerVersion::fetch(&self.client)).await
    }

    /// One to a server of a test.
    #[cfg(test)]
    pub fn of_test(client: Client, deadline: Duration) -> Self {
        Self { client, namespace: "default".to_owned(), deadline, say: to_stderr, clock: Arc::default() }
    }

    /// Seconds since the epoch by the clock of the API server that answered last.
    pub fn now(&self) -> i64 {
        self.clock.reckoned().as_second()
    }

    pub fn clock(&self) -> Arc<ServerClock> {
        Arc::clone(&self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_kubectl_reads_it() {
        for (text, seconds) in [("5", 5), ("30s", 30), ("2m", 120)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["0", "0s", "-1s", "soon"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
