//! What `sluice controller` and `sluice webhook` share: head-room and what it rests on.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context as _;
use http::Uri;
use kube::Client;
use prometheus_client::registry::Registry;
use sluice_api::names;
use sluice_headroom::{
    Headroom, HeadroomMetrics, HeadroomSetup, ObservedLocks, Outcome, Requests, StatusWriter,
};
use sluice_runtime::api_servers::{Servers, follow_identities, follow_servers};
use sluice_runtime::client::{ClientOptions, Server, connect};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::shutdown::Tasks;
use tokio_util::sync::CancellationToken;

/// Flags about head-room.
#[derive(Clone, Debug, clap::Args)]
pub struct HeadroomArgs {
    /// An API server that a raise has to be known to before a target is let in; repeatable. Without it, those that the
    /// API servers themselves publish
    #[arg(long, value_name = "URL")]
    pub api_server: Vec<Uri>,
    /// Trust an address behind which there are several API servers (a load balancer): each raise is asked for so often
    /// there. Without it nothing is raised while more API servers than addresses are known
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub balancer_proofs: u32,
}

/// How to make room.
pub struct Setup<'s> {
    /// Of this process.
    pub tasks: &'s mut Tasks,
    /// For requests.
    pub client: Client,
    /// Those of `client`.
    pub options: ClientOptions,
    /// Namespace of the installation.
    pub namespace: String,
    /// Counts what is written.
    pub writes: ApiWrites,
    /// What is known of the cluster, and of the locks in it.
    pub locks: ObservedLocks,
    /// Ends what keeps the state current.
    pub stopped: CancellationToken,
}

impl HeadroomArgs {
    /// Starts the proofs; returns the API servers too. Metrics are registered as `headroom_*`. `told` is that of
    /// [`Headroom::new`].
    ///
    /// # Errors
    /// When an address of [`Self::api_server`] cannot be used.
    pub async fn start(
        &self,
        setup: Setup<'_>,
        registry: &mut Registry,
        told: impl Fn(Outcome) + Send + Sync + 'static,
    ) -> anyhow::Result<(Arc<Headroom>, Arc<Servers>)> {
        let Setup { tasks, client, options, namespace, writes, locks, stopped } = setup;
        let servers = Servers::new(client.clone(), options.clone()).trusting_balancers(self.balancer_proofs);
        let servers = Arc::new(servers);
        if self.api_server.is_empty() {
            let follow = follow_servers(client.clone(), Arc::clone(&servers), stopped.clone());
            tasks.spawn("API servers", follow);
        } else {
            let given = self.api_server.iter().cloned().map(|url| Server { url, tls_name: None });
            servers.set(given.collect()).await?;
        }
        let identities = follow_identities(client.clone(), Arc::clone(&servers), stopped.clone());
        tasks.spawn("API servers' leases", identities);
        let metrics = HeadroomMetrics::default();
        metrics.register(registry);
        let clock = Arc::new(ServerClock::default());
        let impersonate = Some(names::quota_controller_username());
        let impersonating = connect(&ClientOptions { impersonate, ..options }).await?;
        let writer = StatusWriter::new(client.clone(), impersonating, Arc::clone(&clock), writes);
        let requests = Requests::new(client, clock);
        requests.clock().await.context("could not read the API server's clock")?;
        let setup =
            HeadroomSetup { locks, requests, writer, servers: Arc::clone(&servers), metrics, namespace };
        let headroom = Headroom::new(setup, told);
        let proofs = Arc::clone(&headroom).keep_proving(stopped);
        tasks.spawn("head-room proofs", infallible(proofs));
        Ok((headroom, servers))
    }
}

async fn infallible(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}
