//! `sluice webhook`: the admission endpoints over HTTPS, wiring only.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use prometheus_client::registry::Registry;
use sluice_api::names;
use sluice_engine::ChargeRules;
use sluice_headroom::{Headroom, ObservedLocks, Outcome, granted};
use sluice_runtime::about::About;
use sluice_runtime::client::{ClientOptions, ServerVersion, connect};
use sluice_runtime::events::recorder;
use sluice_runtime::health::{Admin, Checks};
use sluice_runtime::leader::LeaderLink;
use sluice_runtime::lease::unique_identity;
use sluice_runtime::listen::{anywhere, listen};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::serve::{ServeLimits, ServeMetrics, serve};
use sluice_runtime::shutdown::{Tasks, on_signal};
use sluice_runtime::tls::{CertStore, TlsProfile, server_tls, watch_files};
use sluice_webhook::endpoints::QuotaEndpoint;
use sluice_webhook::endpoints::explain::ExplainRelay;
use sluice_webhook::endpoints::growth::GrowthRelay;
use sluice_webhook::endpoints::headroom::HeadroomEndpoint;
use sluice_webhook::endpoints::target::TargetEndpoint;
use sluice_webhook::{
    App, AsyncEndpoints, BodyLimits, SecretPath, Settings, WebhookMetrics, behind, decisions, router,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::gating::ExemptArgs;
use crate::growth;
use crate::headroom::{self, HeadroomArgs};
use crate::metrics::MetricsArgs;
use crate::platform::PlatformAccountsArgs;
use crate::rules::follow_versions;
use crate::secrets::SecretWatches;
use crate::tls_profile::ProfileWatch;
use crate::watches::WebhookWatches;

/// What open requests get to finish after a signal; above the API server's own limit of 10 s.
const GRACE: Duration = Duration::from_secs(12);

/// Limit for one admission request. The API server gives up after 10 s.
const REQUEST_TIME: Duration = Duration::from_secs(11);

/// Flags of `sluice webhook`.
#[derive(Debug, clap::Args)]
pub struct WebhookArgs {
    /// Kubeconfig file; without it, the in-cluster environment or the usual places
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the installation, whose pods are never gated
    #[arg(long, env = "POD_NAMESPACE", default_value = names::INSTALL_NAMESPACE)]
    pub namespace: String,
    /// Where admission requests are served, over HTTPS
    #[arg(long, value_name = "ADDRESS", default_value_t = anywhere(names::WEBHOOK_PORT))]
    pub listen: SocketAddr,
    /// Secret in the installation's namespace with the serving certificate (keys tls.crt and tls.key) and the segment
    /// before every path (key webhook-path)
    #[arg(long, value_name = "NAME", default_value = names::SERVING_SECRET, conflicts_with = "tls_cert_file")]
    pub tls_secret: String,
    /// PEM file with the serving certificate, instead of a Secret
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the key of the serving certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// PEM file with authorities: only clients with a certificate of one of them are answered. For API servers that
    /// have one by their `AdmissionConfiguration`
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub platform: PlatformAccountsArgs,
    #[command(flatten)]
    pub exempt: ExemptArgs,
    /// Largest request body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = BodyLimits::default().body)]
    pub max_body_bytes: usize,
    /// What all request bodies may take together beyond 64 KiB each, in bytes; one sender gets half of it at most
    #[arg(long, value_name = "BYTES", default_value_t = BodyLimits::default().bodies)]
    pub max_bodies_bytes: usize,
    /// Time in which a request body must have arrived, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5_000)]
    pub body_timeout_ms: u64,
    /// Connections served at the same time; for one more an idle one is closed
    #[arg(long, value_name = "N", default_value_t = ServeLimits::default().max_connections)]
    pub max_connections: usize,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub headroom: HeadroomArgs,
}

/// Serves until a signal or until a task dies.
///
/// # Errors
/// When something that is needed from the start is missing, or a task ends early.
pub async fn run(args: WebhookArgs) -> anyhow::Result<()> {
    let cancel = on_signal().context("could not install signal handlers")?;
    let options = ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        user_agent: format!("{}/{}", names::WEBHOOK, env!("CARGO_PKG_VERSION")),
        ..ClientOptions::default()
    };
    let client = connect(&options).await?;
    let version = ServerVersion::fetch(&client).await?;

    let mut registry = Registry::default();
    let metrics = WebhookMetrics::register(&mut registry);
    let mut settings = Settings::new(&args.namespace);
    settings.platform_accounts = args.platform.platform_accounts.usernames().collect();
    settings.exempt = args.exempt.with(&args.namespace).into();
    let limits = BodyLimits {
        body: args.max_body_bytes,
        bodies: args.max_bodies_bytes,
        time: Duration::from_millis(args.body_timeout_ms),
    };
    let app = App::new(settings, limits, metrics);

    let mut tasks = Tasks::new();
    let ready = Checks::default();
    let (watches, mut secrets) = (WebhookWatches::new(), SecretWatches::default());
    let locks = ObservedLocks::new(watches.headroom(), false);
    let observed = Arc::clone(locks.observed());

    // What sessions rest on is kept current until the last raise is ended.
    let stopped = CancellationToken::new();
    let writes = ApiWrites::default();
    let ours = registry.sub_registry_with_prefix("sluice");
    writes.register(ours);
    let (events, writer) = recorder(client.clone(), names::EVENT_COMPONENT, &unique_identity());
    events.counts().register(ours);
    let tell_of_targets = {
        let events = events.clone();
        move |report| events.report(report)
    };
    let tell = move |outcome: Outcome| granted(&outcome).into_iter().for_each(|report| events.report(report));
    let setup = headroom::Setup {
        tasks: &mut tasks,
        client: client.clone(),
        options,
        namespace: args.namespace.clone(),
        writes,
        locks,
        stopped: stopped.clone(),
    };
    let (headroom, servers) = args.headroom.start(setup, ours, tell).await?;
    let profile = Arc::new(TlsProfile::default());
    let follow = ProfileWatch::new(Arc::clone(&profile));
    let (used, beside) = ((Arc::clone(&app), Arc::clone(&observed), follow), observed);
    tasks.spawn("watches", watches.feed(client.clone(), used, stopped.clone()));
    let (rules, charged_by) = watch::channel(ChargeRules::for_minor(version.minor));
    tasks.spawn("versions of API servers", end_with(follow_versions(servers, rules, cancel.clone())));
    tasks.spawn("events", end_with(writer.run(stopped.clone())));
    tasks.spawn(
        "KubeVirt's controller",
        follow_kubevirt(Arc::clone(&headroom), Arc::clone(&app), stopped.clone()),
    );
    let target = TargetEndpoint::new(Arc::clone(&headroom), tell_of_targets);
    let endpoint = HeadroomEndpoint::new(Arc::clone(&headroom), charged_by);
    tasks.spawn("window sessions", end_sessions(headroom, cancel.clone(), stopped));
    let leader = follow_leader(&mut tasks, &mut secrets, client.clone(), &args, &cancel);
    let asking = AsyncEndpoints {
        quotas: Arc::new(QuotaEndpoint::new(beside)),
        growth: Arc::new(GrowthRelay::new(Arc::clone(&leader))),
        explain: Arc::new(ExplainRelay::new(leader)),
        target: Arc::new(target),
        headroom: Arc::new(endpoint),
    };
    let service = router(&app, decisions(&asking));
    let serving = (service, Arc::clone(&profile));
    let certs = serve_reviews(&mut tasks, &args, &mut secrets, serving, &mut registry, &cancel)?;
    secrets.spawn(&mut tasks, &client, &args.namespace, &cancel);
    let loaded = Arc::clone(&certs);
    ready.add("certificate", move || loaded.check());

    let serving = Arc::clone(&certs);
    let about = About::new("webhook", env!("CARGO_PKG_VERSION"));
    registry.register_collector(Box::new(about.certificate("serving", move || serving.validity())));
    let admin = Admin { ready, ..Admin::default() };
    args.metrics.serve(&mut tasks, admin, registry, (certs, profile, client), &cancel)?;
    tasks.supervise(cancel, GRACE).await?;
    Ok(())
}

/// Keeps the way to the controller that leads, which decides what pods may take more.
fn follow_leader(
    tasks: &mut Tasks,
    secrets: &mut SecretWatches,
    client: Client,
    args: &WebhookArgs,
    cancel: &CancellationToken,
) -> Arc<LeaderLink> {
    let namespace = &args.namespace;
    let link = growth::leader_link(namespace);
    let identified = Arc::clone(&link);
    secrets.load(&args.tls_secret, move |secret: &Secret| growth::identify(&identified, secret));
    let lease = (namespace.clone(), names::LEASE);
    let following = Arc::clone(&link).follow(client, lease, names::LEADER_ADDRESS_ANNOTATION, cancel.clone());
    tasks.spawn("leader", following);
    link
}

/// Keeps the endpoints told who KubeVirt's controller is.
async fn follow_kubevirt(
    headroom: Arc<Headroom>,
    app: Arc<App>,
    stopped: CancellationToken,
) -> Result<(), Infallible> {
    let mut changes = headroom.observed().changes();
    let mut known = None;
    let follow = async {
        loop {
            changes.mark_unchanged();
            let now = headroom.observed().read(|index| index.kubevirt_controller());
            if now != known {
                tracing::info!(controller = ?now, "KubeVirt's controller");
                app.set_kubevirt_controller(now.clone());
                known = now;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    stopped.run_until_cancelled(follow).await;
    Ok(())
}

/// After the signal to stop, waits for the targets that are being let in and for the ends of their raises.
async fn end_sessions(
    headroom: Arc<Headroom>,
    cancel: CancellationToken,
    stopped: CancellationToken,
) -> Result<(), Infallible> {
    cancel.cancelled().await;
    headroom.finish().await;
    stopped.cancel();
    Ok(())
}

async fn end_with(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}

/// Starts the HTTPS side: certificate from files or a Secret, reloaded when it changes. Returns where it is kept.
fn serve_reviews(
    tasks: &mut Tasks,
    args: &WebhookArgs,
    secrets: &mut SecretWatches,
    (service, profile): (Router, Arc<TlsProfile>),
    registry: &mut Registry,
    cancel: &CancellationToken,
) -> anyhow::Result<Arc<CertStore>> {
    let certs = Arc::new(CertStore::empty());
    let secret = Arc::new(SecretPath::default());
    match (&args.tls_cert_file, &args.tls_key_file) {
        (Some(cert), Some(key)) => {
            tasks.spawn(
                "certificate files",
                watch_files(cert.clone(), key.clone(), Arc::clone(&certs), cancel.clone()),
            );
        }
        _ => {
            let (store, path) = (Arc::clone(&certs), Arc::clone(&secret));
            secrets.load(&args.tls_secret, move |found: &Secret| {
                path.set(growth::segments(found));
                store.load_secret(found);
            });
        }
    }
    let metrics = ServeMetrics::default();
    metrics.register(registry.sub_registry_with_prefix("sluice_webhook"));
    let listener = listen(args.listen)?;
    let limits = ServeLimits {
        max_connections: args.max_connections,
        // A target may wait for its turn nearly as long as the API server waits for the answer.
        request_timeout: REQUEST_TIME,
        ..ServeLimits::default()
    };
    let client_ca = match &args.client_ca_file {
        Some(file) => {
            Some(std::fs::read(file).with_context(|| format!("could not read {}", file.display()))?)
        }
        None => None,
    };
    let tls = server_tls(Arc::clone(&certs), client_ca.as_deref(), profile)?;
    let service = behind(secret, service);
    tasks.spawn("admission", end_with(serve(listener, tls, service, limits, metrics, cancel.clone())));
    Ok(certs)
}
