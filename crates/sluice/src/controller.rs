//! `sluice controller`: all replicas keep their caches warm, the one that holds the lease acts.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::Client;
use prometheus_client::registry::Registry;
use sluice_api::names;
use sluice_controllers::certificates::{self, CertificateSettings};
use sluice_controllers::gate::{Apply, Concurrency, Gate, GateConfig, GateMetrics, QuotaCollector, Tell};
use sluice_controllers::gating::{Alarm, GatingMetrics, GatingWatch};
use sluice_controllers::headroom::{
    BlockedCollector, BlockedConfig, BlockedMetrics, BlockedMigrations, Reporter, Sources, Sweep,
    SweepMetrics, granted, reports,
};
use sluice_controllers::hooks;
use sluice_engine::ChargeRules;
use sluice_kube_ext::client::{ClientOptions, ServerVersion, connect};
use sluice_kube_ext::events::{Recorder, Report, Severity, recorder};
use sluice_kube_ext::health::{Admin, Checks};
use sluice_kube_ext::lease::plan::Timings;
use sluice_kube_ext::lease::{Election, Leadership, LeaseOptions, WriteToken};
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::shutdown::{Tasks, on_signal};
use sluice_kube_ext::tls::{CertStore, watch_secret};
use sluice_kube_ext::watch::WatchHealth;
use sluice_operator::{Gating, InstallOptions, WebhookClient};
use sluice_window::Servers;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::headroom::{HeadroomArgs, Setup};
use crate::metrics::MetricsArgs;

/// What requests under way and the release of the lease get after a signal.
const GRACE: Duration = Duration::from_secs(10);

/// Flags of `sluice controller`.
#[derive(Debug, clap::Args)]
pub struct ControllerArgs {
    /// Kubeconfig file; without it, the in-cluster environment or the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the installation: its lease and certificates are here, its pods are never held
    #[arg(long, env = "POD_NAMESPACE", default_value = names::INSTALL_NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// How long smaller pods may pass the first in the queue before room is kept for it, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    queue_patience: u32,
    /// How long usage that a predecessor recorded and that is not found is taken to be on its way, in seconds;
    /// at least 15, the duration of the lease, or a predecessor's last release may be counted too late
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    in_flight_grace: u32,
    /// How many gates are removed at the same time
    #[arg(long, value_name = "N", default_value_t = Concurrency::default().releases)]
    concurrent_releases: usize,
    /// How many other requests are under way at the same time
    #[arg(long, value_name = "N", default_value_t = Concurrency::default().others)]
    concurrent_writes: usize,
    /// How long the lease is valid without renewal, such as `15s`: another replica takes over then
    #[arg(long, value_name = "TIME", default_value = "15s")]
    lease_duration: SignedDuration,
    /// How long the leader tries to renew before it gives up and ends, such as `10s`
    #[arg(long, value_name = "TIME", default_value = "10s")]
    lease_renew_deadline: SignedDuration,
    /// How often the lease is renewed or looked at, such as `2s`
    #[arg(long, value_name = "TIME", default_value = "2s")]
    lease_retry_period: SignedDuration,
    /// A further name or address that the webhook's certificate is for, if it is not reached through its
    /// Service; repeatable
    #[arg(long, value_name = "NAME")]
    webhook_san: Vec<String>,
    /// Where the API server reaches the webhook, such as `https://192.0.2.1:8443`, if not through its Service
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Leave certificates, webhook configurations and the admission policies alone
    #[arg(long)]
    no_webhook_setup: bool,
    /// Who gates pods. Before Kubernetes 1.36 it is always the webhook
    #[arg(long, value_enum, value_name = "WHO", default_value_t = GatedBy::Policy)]
    gating: GatedBy,
    /// A further username that may remove the gate from pods; repeatable
    #[arg(long, value_name = "USERNAME")]
    allowed_gate_remover: Vec<String>,
    #[command(flatten)]
    headroom: HeadroomArgs,
}

/// The first minor version of Kubernetes 1 whose API server gates by a policy.
const FIRST_WITH_MUTATING_POLICIES: u32 = 36;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GatedBy {
    /// The API server, by an admission policy, and behind it the webhook
    Policy,
    /// The webhook alone
    Webhook,
}

/// Runs until a signal, the loss of the lease, or the end of a task.
///
/// # Errors
/// When something needed from the start is missing, the lease is lost or a task ends early.
pub async fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let cancel = on_signal().context("could not install signal handlers")?;
    let options = |lane: &str| ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        user_agent: format!("{}/{} {lane}", names::CONTROLLER, env!("CARGO_PKG_VERSION")),
        ..ClientOptions::default()
    };
    let client = connect(&options("gate")).await?;
    // Renewing the lease must never wait behind other requests.
    let lease_client = connect(&options("lease")).await?;
    let version = ServerVersion::fetch(&client).await?;
    tracing::info!(server = %format!("{}.{}", version.major, version.minor), "connected");

    let timings = lease_timings(&args)?;
    let mut lease = LeaseOptions::new(&args.namespace, names::LEASE);
    lease.timings = timings;
    let identity = lease.identity.clone();
    let election = Election::new(lease_client, lease)?;
    let (token, leadership) = (election.token(), election.leadership());

    let mut registry = Registry::default();
    let metrics = GateMetrics::default();
    metrics.register(&mut registry);
    let (blocked_metrics, sweep_metrics) = (BlockedMetrics::default(), SweepMetrics::default());
    blocked_metrics.register(&mut registry);
    sweep_metrics.register(&mut registry);
    let writes = ApiWrites::default();
    let (events, writer) = recorder(client.clone(), names::EVENT_COMPONENT, &identity);
    {
        let ours = registry.sub_registry_with_prefix("sluice");
        writes.register(ours);
        events.counts().register(ours);
    }

    let mut config = GateConfig::new(names::GATE, ChargeRules::for_minor(version.minor));
    config.patience_s = i64::from(args.queue_patience);
    config.in_flight_grace_ms = u64::from(args.in_flight_grace) * 1000;
    let gate = Gate::new(config, &args.namespace, metrics);
    registry.register_collector(Box::new(QuotaCollector(gate.state())));

    // The lease is given back, and what head-room rests on is kept current, until the last request is answered.
    let stopped = CancellationToken::new();
    let mut tasks = Tasks::new();
    let setup = Setup {
        tasks: &mut tasks,
        client: connect(&options("head-room")).await?,
        options: options("head-room"),
        namespace: args.namespace.clone(),
        writes: writes.clone(),
        remember_dirty: true,
        stopped: stopped.clone(),
    };
    let recorder = events.clone();
    let tell = move |outcome| granted(&outcome).into_iter().for_each(|report| recorder.report(report));
    let (headroom, servers) =
        args.headroom.start(setup, registry.sub_registry_with_prefix("sluice"), tell).await?;
    let (sources, rules) = (Sources::default(), ChargeRules::for_minor(version.minor));
    let recorder = events.clone();
    let tell = move |tell| reports(&tell).into_iter().for_each(|report| recorder.report(report));
    let watched = (sources.clone(), blocked_metrics);
    let blocked =
        BlockedMigrations::new(BlockedConfig::default(), Arc::clone(&headroom), watched, rules, tell);
    registry.register_collector(Box::new(BlockedCollector(blocked.state())));

    let install = args.install_options(&version);
    let gating = watch_gating(&mut tasks, servers, &install, &mut registry, (&events, &token), &cancel);
    let ready = Checks::default();
    ready.tell("gate", move || gating.summary());
    let watches =
        gate.watches().into_iter().chain(headroom.observed().watches()).chain(sources.watches().to_vec());
    for watch in watches {
        ready.add(watch.kind().to_owned(), move || watch.check());
    }
    let certs = Arc::new(CertStore::empty());
    let admin = Admin { ready, ..Admin::default() };
    let seen_by = (Arc::clone(&certs), client.clone());
    args.metrics.serve(&mut tasks, admin, registry, seen_by, &cancel).await?;

    let concurrency = Concurrency { releases: args.concurrent_releases, others: args.concurrent_writes };
    let reporter = Reporter::default();
    let recorder = events.clone();
    let tell = move |held: Tell| tell_pod(&recorder, held);
    let request_deadline = timings.duration.saturating_sub(timings.renew_deadline);
    let apply =
        Apply::new(client.clone(), token.clone(), writes.clone(), tell, concurrency, request_deadline);

    tasks.spawn(
        "certificate secret",
        fallible(follow_certificate(client.clone(), &args.namespace, certs, &cancel)),
    );
    tasks.spawn("election", election.run(stopped.clone()));
    tasks.spawn("events", fallible(writer.run(cancel.clone())));
    tasks.spawn("watches", fallible(gate.clone().observe(client.clone(), cancel.clone())));
    if !args.no_webhook_setup {
        let may_write = |token: &WriteToken| {
            let token = token.clone();
            move || token.is_held()
        };
        let mut settings = CertificateSettings::new(&args.namespace);
        settings.names.extend(args.webhook_san.iter().cloned());
        let certificates = certificates::run(client.clone(), settings, may_write(&token), cancel.clone());
        tasks.spawn("certificates", once_leading(leadership.clone(), cancel.clone(), certificates));
        let hooks = hooks::run(client.clone(), install, may_write(&token), cancel.clone());
        tasks.spawn("hooks", once_leading(leadership.clone(), cancel.clone(), hooks));
    }
    tasks.spawn("head-room sights", fallible(sources.clone().observe(client.clone(), stopped.clone())));
    let facts = (blocked.state(), Arc::clone(headroom.observed()), sources.clone());
    let report = reporter.clone().run(facts, client, token.clone(), writes, cancel.clone());
    tasks.spawn("head-room conditions", fallible(report));
    let waking = blocked.run((token.clone(), leadership.clone()), reporter, cancel.clone());
    let sweep = Sweep::new(headroom, sweep_metrics);
    let (lead, cancelled) = ((token, leadership.clone()), cancel.clone());
    let sweeping = async move { sweep.run(&sources, lead, cancelled).await };
    let deciding = gate.decide(apply, leadership, cancel.clone());
    tasks.spawn(
        "decisions",
        fallible(async move {
            tokio::join!(deciding, waking, sweeping);
            stopped.cancel();
        }),
    );
    tasks.supervise(cancel, GRACE).await?;
    Ok(())
}

impl ControllerArgs {
    /// What is kept in force in this cluster.
    fn install_options(&self, version: &ServerVersion) -> InstallOptions {
        let by_policy = self.gating == GatedBy::Policy
            && (version.major, version.minor) >= (1, FIRST_WITH_MUTATING_POLICIES);
        InstallOptions {
            namespace: self.namespace.clone(),
            webhook_client: self.webhook_url.clone().map_or(WebhookClient::Service, WebhookClient::Url),
            gating: if by_policy { Gating::Policy } else { Gating::Webhook },
            further_gate_removers: self.allowed_gate_remover.clone(),
            ..InstallOptions::default()
        }
    }
}

/// Keeps asking who gates pods; the leader tells of what is wrong.
fn watch_gating(
    tasks: &mut Tasks,
    servers: Arc<Servers>,
    install: &InstallOptions,
    registry: &mut Registry,
    (events, token): (&Recorder, &WriteToken),
    cancel: &CancellationToken,
) -> Arc<GatingWatch> {
    let metrics = GatingMetrics::default();
    metrics.register(registry.sub_registry_with_prefix("sluice"));
    let gating = GatingWatch::new(servers, install.gating, metrics);
    let (events, token, namespace) = (events.clone(), token.clone(), install.namespace.clone());
    let tell = move |alarm: Alarm| {
        if token.is_held() {
            events.report(alarmed(&namespace, alarm));
        }
    };
    tasks.spawn("who gates", fallible(Arc::clone(&gating).run(tell, cancel.clone())));
    gating
}

/// About the namespace of the installation: there is no other object that all of it is about.
fn alarmed(namespace: &str, alarm: Alarm) -> Report {
    Report {
        regarding: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(namespace.to_owned()),
            ..ObjectReference::default()
        },
        related: None,
        severity: Severity::Warning,
        reason: alarm.reason.to_owned(),
        action: "Gate".to_owned(),
        note: alarm.note,
    }
}

fn time(flag: &str, value: SignedDuration) -> anyhow::Result<Duration> {
    Duration::try_from(value).with_context(|| format!("--{flag} must not be negative"))
}

fn lease_timings(args: &ControllerArgs) -> anyhow::Result<Timings> {
    Ok(Timings {
        duration: time("lease-duration", args.lease_duration)?,
        renew_deadline: time("lease-renew-deadline", args.lease_renew_deadline)?,
        retry: time("lease-retry-period", args.lease_retry_period)?,
    })
}

/// Keeps the certificate that metrics are served with.
fn follow_certificate(
    client: Client,
    namespace: &str,
    certs: Arc<CertStore>,
    cancel: &CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (namespace, cancel) = (namespace.to_owned(), cancel.clone());
    let load = move |secret: &Secret| certs.load_secret(secret);
    async move {
        let health = WatchHealth::new("secrets");
        watch_secret(client, &namespace, names::SERVING_SECRET, load, health, cancel).await;
    }
}

/// Starts `task` when this process begins to lead.
async fn once_leading<E>(
    mut leadership: watch::Receiver<Leadership>,
    cancel: CancellationToken,
    task: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    tokio::select! {
        () = cancel.cancelled() => return Ok(()),
        leads = leadership.wait_for(Leadership::is_leading) => if leads.is_err() {
            return Ok(());
        },
    }
    task.await
}

async fn fallible(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}

fn tell_pod(events: &Recorder, held: Tell) {
    events.report(Report {
        regarding: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(held.namespace.to_string()),
            name: Some(held.name.to_string()),
            uid: Some(held.uid.to_string()),
            ..ObjectReference::default()
        },
        related: None,
        severity: Severity::Warning,
        reason: held.reason.to_owned(),
        action: "Hold".to_owned(),
        note: held.message,
    });
}
