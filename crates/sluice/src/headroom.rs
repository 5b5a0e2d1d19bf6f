//! What `sluice controller` and `sluice webhook` share: windows and what they rest on.

use std::convert::Infallible;
use std::sync::Arc;

use http::Uri;
use kube::Client;
use prometheus_client::registry::Registry;
use sluice_headroom::{Headroom, HeadroomMetrics, Observed, Requests, Servers, follow_servers};
use sluice_kube_ext::client::{ClientOptions, Server};
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::shutdown::Tasks;
use tokio_util::sync::CancellationToken;

/// Flags about windows.
#[derive(Debug, Clone, clap::Args)]
pub struct HeadroomArgs {
    /// Address of one API server, such as `https://192.0.2.1:6443`, at which locks are proven; repeatable. Without it,
    /// the addresses that the API servers publish
    #[arg(long, value_name = "URL")]
    pub api_server: Vec<Uri>,
}

/// How to open windows.
pub struct Setup<'s> {
    /// Of this process.
    pub tasks: &'s mut Tasks,
    /// For requests about windows.
    pub client: Client,
    /// Those of `client`.
    pub options: ClientOptions,
    /// Name of this process in windows.
    pub holder: String,
    /// Counts what is written.
    pub writes: ApiWrites,
    /// Whether somebody asks what changed.
    pub remember_dirty: bool,
    /// Ends what keeps the state current.
    pub stopped: CancellationToken,
}

impl HeadroomArgs {
    /// Starts the watches. Metrics are registered as `headroom_*`.
    ///
    /// # Errors
    /// When an address of [`Self::api_server`] cannot be used.
    pub async fn start(&self, setup: Setup<'_>, registry: &mut Registry) -> anyhow::Result<Arc<Headroom>> {
        let Setup { tasks, client, options, holder, writes, remember_dirty, stopped } = setup;
        let servers = Arc::new(Servers::new(client.clone(), options));
        if self.api_server.is_empty() {
            let follow = follow_servers(client.clone(), Arc::clone(&servers), stopped.clone());
            tasks.spawn("API servers", infallible(follow));
        } else {
            let given = self.api_server.iter().cloned().map(|url| Server { url, tls_name: None });
            servers.set(given.collect()).await?;
        }
        let observed = Observed::new(remember_dirty);
        let watches = Arc::clone(&observed).observe(client.clone(), stopped);
        tasks.spawn("head-room watches", infallible(watches));
        let metrics = HeadroomMetrics::default();
        metrics.register(registry);
        Ok(Headroom::new(observed, Requests::new(client, servers, writes), metrics, holder))
    }
}

async fn infallible(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}
