//! `sluice controller`: all replicas keep their caches warm, the one that holds the lease acts.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Secret;
use prometheus_client::registry::Registry;
use sluice_api::names;
use sluice_controllers::gating::{Alarm, GatingMetrics, GatingWatch};
use sluice_controllers::managed_quota::ManagedQuotas;
use sluice_engine::ChargeRules;
use sluice_gate::cluster_quota_status::{ClusterQuotaStatus, MirrorNamespaces};
use sluice_gate::{AT_A_TIME, Apply, Gate, GateConfig, GateEvent, GateMetrics, QuotaCollector};
use sluice_headroom::ObservedLocks;
use sluice_headroom::loops::{BlockedCollector, BlockedMigrations, GrantStatus, LoopMetrics, Sweep};
use sluice_manifests::Gating;
use sluice_runtime::about::About;
use sluice_runtime::api_servers::Servers;
use sluice_runtime::client::{ClientOptions, ServerVersion, connect};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::events::{Recorder, recorder};
use sluice_runtime::health::{Admin, Checks};
use sluice_runtime::lease::{Election, LeaseOptions, WriteToken};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::shutdown::{Tasks, on_signal};
use sluice_runtime::tls::{CertStore, TlsProfile};
use sluice_webhook::WebhookMetrics;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alarm::alarmed;
use crate::evaluators::ActiveEvaluators;
use crate::gate_events::report;
use crate::gating::GatingArgs;
use crate::growth::{self, GrowthArgs};
use crate::headroom::{HeadroomArgs, Setup};
use crate::lease::LeaseArgs;
use crate::metrics::MetricsArgs;
use crate::platform::PlatformArgs;
use crate::rules::follow_versions;
use crate::schemas::{self, Schemas};
use crate::secrets::SecretWatches;
use crate::sidecars::SidecarArgs;
use crate::tls_profile::ProfileWatch;
use crate::watches::{ControllerWatches, QuotaUsers};

/// What requests under way and the release of the lease get after a signal.
const GRACE: Duration = Duration::from_secs(10);

/// What a predecessor released or admitted can be under way for so many seconds: its lease, and a request.
const IN_FLIGHT_S: u32 = 50;

/// What namespaces' `ApplicationAwareAppliedClusterResourceQuota`s say.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ShownUse {
    Own,
    All,
}

impl From<ShownUse> for MirrorNamespaces {
    fn from(shown: ShownUse) -> Self {
        match shown {
            ShownUse::Own => Self::Own,
            ShownUse::All => Self::All,
        }
    }
}

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
    /// How long others may pass a waiting pod, smaller ones or of higher priority, before room is kept for it, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    queue_patience: u32,
    /// How long usage that a predecessor recorded and that is not found is taken to be on its way, in seconds; at least
    /// 50: the duration of the lease, and 34 in which an API server may commit a resize that it admitted last
    #[arg(long, value_name = "SECONDS", default_value_t = IN_FLIGHT_S)]
    in_flight_grace: u32,
    /// How many gates are removed at the same time, of one namespace at most two thirds of them
    #[arg(long, value_name = "N", default_value_t = 48)]
    concurrent_releases: usize,
    /// How many other requests are under way at the same time
    #[arg(long, value_name = "N", default_value_t = AT_A_TIME)]
    concurrent_writes: usize,
    /// Whose use of a cluster quota is shown in a namespace, beside the total: its own, or that of all namespaces
    #[arg(long, value_name = "WHOSE", value_enum, default_value_t = ShownUse::Own)]
    applied_cluster_quotas: ShownUse,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    gating: GatingArgs,
    #[command(flatten)]
    platform: PlatformArgs,
    #[command(flatten)]
    growth: GrowthArgs,
    /// Secret in the installation's namespace with the serving certificate (keys tls.crt and tls.key) and the authorities of
    /// the webhook (key ca.crt)
    #[arg(long, value_name = "NAME", default_value = names::SERVING_SECRET)]
    tls_secret: String,
    #[command(flatten)]
    headroom: HeadroomArgs,
    #[command(flatten)]
    sidecars: SidecarArgs,
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
    // The lease is renewed all the time, so the clock is fresh.
    let clock = Arc::new(ServerClock::default());
    let telling = |lane| ClientOptions { clock: Some(Arc::clone(&clock)), ..options(lane) };
    let client = connect(&telling("gate")).await?;
    // Renewing the lease must never wait behind other requests.
    let lease_client = connect(&telling("lease")).await?;
    let version = ServerVersion::fetch(&client).await?;
    tracing::info!(server = %format!("{}.{}", version.major, version.minor), "connected");
    clock
        .now()
        .context("the API server's answers have no Date header: have the proxy before it keep the header")?;

    let lease = args.lease_options()?;
    let request_deadline = lease.timings.duration.saturating_sub(lease.timings.renew_deadline);
    let identity = lease.identity.clone();
    let election = Election::new(lease_client, lease)?;
    let (token, leadership, handover) = (election.token(), election.leadership(), election.handover());

    let mut registry = Registry::default();
    let metrics = GateMetrics::default();
    metrics.register(&mut registry);
    let loop_metrics = LoopMetrics::default();
    loop_metrics.register(&mut registry);
    let growth_metrics = WebhookMetrics::register(&mut registry);
    let writes = ApiWrites::default();
    let (events, writer) = recorder(client.clone(), names::EVENT_COMPONENT, &identity);
    {
        let ours = registry.sub_registry_with_prefix("sluice");
        writes.register(ours);
        events.counts().register(ours);
    }

    let (rules, charged_by) = watch::channel(ChargeRules::for_minor(version.minor));
    let config = args.gate_config(*charged_by.borrow());
    let exempt = args.gating.exempt_with(&args.namespace);
    let watches = ControllerWatches::new(&args.namespace);
    let sidecars = args.sidecars.start(registry.sub_registry_with_prefix("sluice"))?;
    let gate = Gate::new(config, &exempt, metrics.clone(), watches.gate(), Arc::clone(&clock));
    let evaluators = Arc::new(ActiveEvaluators::new(sidecars, gate.clone()));
    let collector = QuotaCollector { state: gate.state(), clock: Arc::clone(&clock), metrics };
    registry.register_collector(Box::new(collector));

    // The lease is given back, and what head-room rests on is kept current, until the last request is answered.
    let stopped = CancellationToken::new();
    let mut tasks = Tasks::new();
    evaluators.spawn(&mut tasks, &cancel);
    let locks = ObservedLocks::new(watches.headroom(), true);
    let observed = Arc::clone(locks.observed());
    let headroom_client = connect(&options("head-room")).await?;
    let setup = Setup {
        tasks: &mut tasks,
        client: headroom_client.clone(),
        options: options("head-room"),
        namespace: args.namespace.clone(),
        writes: writes.clone(),
        locks,
        stopped: stopped.clone(),
    };
    // Targets are let in by the webhook alone, so there is nothing to tell of.
    let (headroom, servers) =
        args.headroom.start(setup, registry.sub_registry_with_prefix("sluice"), |_| ()).await?;
    let follow = follow_versions(Arc::clone(&servers), rules, cancel.clone());
    tasks.spawn("versions of API servers", fallible(follow));
    tasks.spawn("rules of charging", fallible(gate.clone().follow_rules(charged_by, cancel.clone())));
    let recorder = events.clone();
    let tell = move |report| recorder.report(report);
    let blocked = BlockedMigrations::new(Arc::clone(&headroom), loop_metrics.clone(), tell);
    registry.register_collector(Box::new(BlockedCollector(blocked.summaries())));

    let by = (args.gating.of(&version), args.namespace.clone());
    let gating = watch_gating(&mut tasks, servers, by, &mut registry, (&events, &token), &cancel);
    let telling = Arc::clone(&gating).tell(
        (client.clone(), Arc::clone(&clock)),
        (headroom.proofs(), evaluators.states()),
        token.clone(),
        writes.clone(),
        cancel.clone(),
    );
    tasks.spawn("status of the AAQ", fallible(telling));
    let admin = admin(&watches, Arc::clone(&gating), &evaluators);
    let schemas = Schemas::new();
    let kept = schemas.clone();
    admin.ready.add("schemas", move || kept.check());
    let (certs, profile) = (Arc::new(CertStore::empty()), Arc::new(TlsProfile::default()));
    let clients = growth::asking(&args.namespace);
    let served = (Arc::clone(&certs), Arc::clone(&clients), Arc::clone(&profile));
    let asked = growth::asked(&gate, &token, &identity);
    args.growth.serve(&mut tasks, asked, served, growth_metrics, &cancel)?;
    let serving = Arc::clone(&certs);
    let about = About::new("controller", env!("CARGO_PKG_VERSION")).leading(token.clone());
    registry.register_collector(Box::new(about.certificate("serving", move || serving.validity())));
    let seen_by = (Arc::clone(&certs), Arc::clone(&profile), client.clone());
    args.metrics.serve(&mut tasks, admin, registry, seen_by, &cancel)?;

    let statuses = GrantStatus::default();
    let recorder = events.clone();
    let write_event = move |event: GateEvent| {
        let recorder = recorder.clone();
        async move { recorder.write(report(event)).await }.boxed()
    };
    let apply = Apply::new(
        client.clone(),
        token.clone(),
        writes.clone(),
        &args.namespace,
        write_event,
        args.concurrent_writes,
        request_deadline,
    );

    let load = move |secret: &Secret| {
        growth::trust_clients(&clients, secret);
        certs.load_secret(secret);
    };
    let mut secrets = SecretWatches::default();
    secrets.load(&args.tls_secret, load);
    secrets.spawn(&mut tasks, &client, &args.namespace, &cancel);
    let tell = schemas::telling(&events, &args.namespace);
    tasks.spawn("schemas", schemas.clone().follow(client.clone(), tell, cancel.clone()));
    tasks.spawn("election", schemas.elect(election, cancel.clone(), stopped.clone()));
    tasks.spawn("events", fallible(writer.run(cancel.clone())));
    let managed = ManagedQuotas::of_namespaces(Arc::clone(&observed), gate.clone());
    let managed_cluster = ManagedQuotas::of_clusters(gate.clone());
    for (name, managed, fed_by) in [
        ("managed quotas", &managed, watches.managed_quotas()),
        ("managed cluster quotas", &managed_cluster, watches.managed_cluster_quotas()),
    ] {
        let lead = (token.clone(), leadership.clone());
        let managing = managed.clone().run((client.clone(), writes.clone()), lead, fed_by, cancel.clone());
        tasks.spawn(name, fallible(managing));
    }
    let shown = ClusterQuotaStatus::new(args.applied_cluster_quotas.into());
    let objects = evaluators.objects();
    let told_by = ((client.clone(), Arc::clone(&clock)), (token.clone(), leadership.clone()));
    let telling = objects.tell(
        (gate.clone(), evaluators.states(), evaluators.metrics()),
        told_by.0,
        told_by.1,
        writes.clone(),
        cancel.clone(),
    );
    tasks.spawn("status of evaluators", fallible(telling));
    let quotas =
        QuotaUsers { gate: gate.clone(), evaluators, managed, managed_cluster, cluster: shown.clone() };
    let used = (quotas, gating, Arc::clone(&observed), ProfileWatch::new(profile));
    watches.spawn(&mut tasks, [client.clone(), headroom_client], used, &stopped);
    let showing = shown.run(gate.clone(), client.clone(), token.clone(), writes.clone(), cancel.clone());
    tasks.spawn("status of cluster quotas", fallible(showing));
    let facts = (blocked.summaries(), Arc::clone(&headroom));
    let recorder = events.clone();
    let tell = move |report| recorder.report(report);
    let report = statuses.clone().run(
        facts,
        (loop_metrics.clone(), tell),
        client,
        token.clone(),
        writes,
        cancel.clone(),
    );
    tasks.spawn("head-room conditions", fallible(report));
    let waking = blocked.run((token.clone(), leadership.clone()), statuses, cancel.clone());
    let sweep = Sweep::new(headroom, loop_metrics);
    let (lead, cancelled) = ((token, leadership.clone()), cancel.clone());
    let sweeping = async move { sweep.run(lead, cancelled).await };
    let deciding = gate.decide(apply, leadership, cancel.clone());
    tasks.spawn(
        "decisions",
        fallible(async move {
            let (has_nothing_under_way, (), ()) = tokio::join!(deciding, waking, sweeping);
            if has_nothing_under_way {
                handover.nothing_is_under_way();
            }
            stopped.cancel();
        }),
    );
    tasks.supervise(cancel, GRACE).await?;
    Ok(())
}

impl ControllerArgs {
    /// With the address at which the webhook reaches this process while it leads.
    fn lease_options(&self) -> anyhow::Result<LeaseOptions> {
        let mut lease = LeaseOptions::new(&self.namespace, names::LEASE);
        lease.timings = self.lease.timings()?;
        lease.labels = crate::lease::labels();
        lease.handover = Some(names::HANDED_OVER_ANNOTATION);
        match self.growth.address() {
            Some(address) => {
                drop(
                    lease
                        .annotations
                        .insert(names::LEADER_ADDRESS_ANNOTATION.to_owned(), address.to_string()),
                );
            }
            None => tracing::warn!(
                "no address of this process is known (--pod-ip): while it leads, resizes are refused"
            ),
        }
        Ok(lease)
    }

    fn gate_config(&self, rules: ChargeRules) -> GateConfig {
        let mut config = GateConfig::new(names::GATE, rules);
        config.concurrent_releases = self.concurrent_releases.max(1);
        config.platform = self.platform.platform();
        config.patience_ms = u64::from(self.queue_patience) * 1000;
        config.in_flight_grace_ms = u64::from(self.in_flight_grace) * 1000;
        if self.in_flight_grace < IN_FLIGHT_S {
            let (seconds, least) = (self.in_flight_grace, IN_FLIGHT_S);
            tracing::warn!(
                seconds,
                least,
                "--in-flight-grace: what a predecessor admitted last may be counted too late"
            );
        }
        config
    }
}

/// Ready when each watch is current, alive while each is heard of or tried.
fn admin(watches: &ControllerWatches, gating: Arc<GatingWatch>, evaluators: &ActiveEvaluators) -> Admin {
    let (live, ready) = (Checks::default(), Checks::default());
    ready.tell("gate", move || gating.summary());
    evaluators.tell(&ready);
    for watch in watches.all() {
        let stuck = watch.clone();
        live.add(watch.kind().to_owned(), move || stuck.alive());
        ready.add(watch.kind().to_owned(), move || watch.check());
    }
    Admin { live, ready }
}

/// Keeps asking who gates pods; the leader tells of what is wrong.
fn watch_gating(
    tasks: &mut Tasks,
    servers: Arc<Servers>,
    (gating, namespace): (Gating, String),
    registry: &mut Registry,
    (events, token): (&Recorder, &WriteToken),
    cancel: &CancellationToken,
) -> Arc<GatingWatch> {
    let metrics = GatingMetrics::default();
    metrics.register(registry.sub_registry_with_prefix("sluice"));
    let gating = GatingWatch::new(servers, gating, metrics);
    let (events, token) = (events.clone(), token.clone());
    let tell = move |alarm: Alarm| {
        if token.is_held() {
            events.report(alarmed(&namespace, alarm.reason, alarm.note));
        }
    };
    tasks.spawn("who gates", fallible(Arc::clone(&gating).run(tell, cancel.clone())));
    gating
}

async fn fallible(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}
