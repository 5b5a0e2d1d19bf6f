//! Where metrics are served, and for whom.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use jiff::SignedDuration;
use kube::Client;
use prometheus_client::registry::Registry;
use sluice_api::names;
use sluice_runtime::access::Access;
use sluice_runtime::health::{self, Admin};
use sluice_runtime::listen::{anywhere, listen};
use sluice_runtime::scrape::{self, Snapshot};
use sluice_runtime::serve::{ServeLimits, ServeMetrics, serve, serve_plain};
use sluice_runtime::shutdown::Tasks;
use sluice_runtime::tls::{CertStore, ServerTls, TlsProfile, server_tls};
use tokio_util::sync::CancellationToken;

/// Connections of those who scrape.
const CONNECTIONS: usize = 32;

/// Flags about probes and metrics.
#[derive(Debug, clap::Args)]
pub struct MetricsArgs {
    /// Where probes are served, over HTTP
    #[arg(long, value_name = "ADDRESS", default_value_t = anywhere(names::ADMIN_PORT))]
    admin_listen: SocketAddr,
    /// Where metrics are served, over HTTPS, to accounts that may `get` the path `/metrics`
    #[arg(long, value_name = "ADDRESS", default_value_t = anywhere(names::METRICS_PORT))]
    metrics_listen: SocketAddr,
    /// Serve metrics beside the probes, over HTTP, without authentication
    #[arg(long)]
    metrics_plain: bool,
    /// How long one scrape gets the same as another, such as `1s`
    #[arg(long, value_name = "TIME", default_value = "1s")]
    metrics_cache: SignedDuration,
}

impl MetricsArgs {
    /// Serves probes and the metrics of `registry`, which is complete. `certs` and `profile` are for metrics, `client` asks
    /// who may see them.
    ///
    /// # Errors
    /// When an address cannot be listened on.
    pub fn serve(
        &self,
        tasks: &mut Tasks,
        admin: Admin,
        registry: Registry,
        (certs, profile, client): (Arc<CertStore>, Arc<TlsProfile>, Client),
        cancel: &CancellationToken,
    ) -> anyhow::Result<()> {
        let fresh = Duration::try_from(self.metrics_cache).context("--metrics-cache must not be negative")?;
        let snapshot = Snapshot::new(registry, fresh);
        let mut probes = health::router(admin);
        if self.metrics_plain {
            probes = probes.merge(scrape::router(snapshot, None));
        } else {
            let app = scrape::router(snapshot, Some(Access::new(client)));
            self.serve_metrics(tasks, app, server_tls(certs, None, profile)?, cancel)?;
        }
        let listener = listen(self.admin_listen)?;
        let (limits, metrics) = (ServeLimits::probes(), ServeMetrics::default());
        let serving = serve_plain(listener, probes, limits, metrics, cancel.clone());
        tasks.spawn("admin", async move {
            serving.await;
            Ok::<_, Infallible>(())
        });
        Ok(())
    }

    fn serve_metrics(
        &self,
        tasks: &mut Tasks,
        app: Router,
        tls: ServerTls,
        cancel: &CancellationToken,
    ) -> anyhow::Result<()> {
        let listener = listen(self.metrics_listen)?;
        let limits = ServeLimits { max_connections: CONNECTIONS, ..ServeLimits::default() };
        let serving = serve(listener, tls, app, limits, ServeMetrics::default(), cancel.clone());
        tasks.spawn("metrics", async move {
            serving.await;
            Ok::<_, Infallible>(())
        });
        Ok(())
    }
}
