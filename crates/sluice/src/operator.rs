//! `sluice operator`: keeps the installation's admission objects and certificates, brings to its Deployments what the `AAQ`
//! asks and says how it is, with an identity that may do nothing else.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use sluice_api::names;
use sluice_controllers::admission_config;
use sluice_controllers::certificates::{self, CertificateSettings, Secrets};
use sluice_controllers::installation::{self, InstallationSettings, follow_asked};
use sluice_operator::{InstallOptions, WebhookClient};
use sluice_runtime::client::{ClientOptions, ServerVersion, connect};
use sluice_runtime::health::Admin;
use sluice_runtime::lease::{Election, Leadership, LeaseOptions, WriteToken};
use sluice_runtime::shutdown::{Tasks, on_signal};
use sluice_runtime::tls::{CertStore, TlsProfile};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::gating::GatingArgs;
use crate::lease::LeaseArgs;
use crate::metrics::MetricsArgs;
use crate::platform::PlatformAccountsArgs;
use crate::server_version::end_when_gated_otherwise;
use crate::tls_profile::ProfileKeeper;

/// What requests under way and the release of the lease get after a signal.
const GRACE: Duration = Duration::from_secs(10);

/// Flags of `sluice operator`.
#[derive(Debug, clap::Args)]
pub struct OperatorArgs {
    /// Kubeconfig file; without it, the in-cluster environment or the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the installation
    #[arg(long, env = "POD_NAMESPACE", default_value = names::INSTALL_NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    lease: LeaseArgs,
    /// A further name or address that the webhook's certificate is for, if it is not reached through its
    /// Service; repeatable
    #[arg(long, value_name = "NAME")]
    webhook_san: Vec<String>,
    /// Where the API server reaches the webhook, such as `https://192.0.2.1:8443`, if not through its Service
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    #[command(flatten)]
    gating: GatingArgs,
    #[command(flatten)]
    platform: PlatformAccountsArgs,
    /// A further username that may remove the gate from pods; repeatable
    #[arg(long, value_name = "USERNAME")]
    allowed_gate_remover: Vec<String>,
    /// The version that the status of AAQ and MTQ says; that of this program if not given. For programs that wait for a
    /// version of application-aware-quota
    #[arg(long, env = "OPERATOR_VERSION", value_name = "VERSION")]
    reported_version: Option<String>,
}

/// Runs until a signal, the loss of the lease, or the end of a task.
///
/// # Errors
/// When something needed from the start is missing, the lease is lost or a task ends early.
pub async fn run(args: OperatorArgs) -> anyhow::Result<()> {
    let cancel = on_signal().context("could not install signal handlers")?;
    let options = ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        user_agent: format!("{}/{}", names::OPERATOR, env!("CARGO_PKG_VERSION")),
        ..ClientOptions::default()
    };
    let client = connect(&options).await?;
    let version = ServerVersion::fetch(&client).await?;
    tracing::info!(server = %format!("{}.{}", version.major, version.minor), "connected");

    let mut lease = LeaseOptions::new(&args.namespace, names::OPERATOR);
    lease.timings = args.lease.timings()?;
    lease.labels = crate::lease::labels();
    let election = Election::new(client.clone(), lease)?;
    let (token, leadership) = (election.token(), election.leadership());

    let mut tasks = Tasks::new();
    let (certs, profile) = (Arc::new(CertStore::empty()), Arc::new(TlsProfile::default()));
    let seen_by = (Arc::clone(&certs), Arc::clone(&profile), client.clone());
    args.metrics.serve(&mut tasks, Admin::default(), Registry::default(), seen_by, &cancel)?;
    let (asking, asked) = watch::channel(None);
    let following = follow_asked(client.clone(), asking, cancel.clone());
    tasks.spawn("what AAQ and MTQ ask of this process", end_with(following));
    tasks.spawn("TLS profile", end_with(ProfileKeeper::new(profile).follow(asked.clone())));
    let secrets = Secrets::default();
    let watching = secrets.clone().observe(client.clone(), args.namespace.clone(), cancel.clone());
    tasks.spawn("secrets", watching);
    let loading = secrets.clone().load_serving(move |secret| certs.load_secret(secret), cancel.clone());
    tasks.spawn("certificate secret", end_with(loading));

    let mut settings = CertificateSettings::new(&args.namespace);
    settings.names.extend(args.webhook_san.iter().cloned());
    let certificates = certificates::run(
        client.clone(),
        secrets.clone(),
        settings,
        asked,
        may_write(&token),
        cancel.clone(),
    );
    tasks.spawn("certificates", once_leading(leadership.clone(), cancel.clone(), certificates));
    let upgrade = end_when_gated_otherwise(client.clone(), args.gating.wanted(), version, cancel.clone());
    tasks.spawn("version of the API server", end_with(upgrade));
    let options = args.install_options(&version);
    let (withheld, why_withheld) = watch::channel(None);
    let configuration =
        admission_config::run(client.clone(), secrets, options, withheld, may_write(&token), cancel.clone());
    tasks.spawn("admission configuration", once_leading(leadership.clone(), cancel.clone(), configuration));
    let settings = InstallationSettings::new(&args.namespace, args.reported_version.as_deref());
    let keeping = installation::run(client, settings, why_withheld, may_write(&token), cancel.clone());
    tasks.spawn("installation", once_leading(leadership, cancel.clone(), keeping));
    // The lease is given back when nothing is written any more.
    tasks.spawn("election", election.run(cancel.clone()));
    tasks.supervise(cancel, GRACE).await?;
    Ok(())
}

impl OperatorArgs {
    /// What is kept in force in this cluster.
    fn install_options(&self, version: &ServerVersion) -> InstallOptions {
        InstallOptions {
            namespace: self.namespace.clone(),
            webhook_client: self.webhook_url.clone().map_or(WebhookClient::Service, WebhookClient::Url),
            gating: self.gating.of(version),
            exempt_namespaces: self.gating.exempt().to_vec(),
            platform_accounts: self.platform.platform_accounts.clone(),
            further_gate_removers: self.allowed_gate_remover.clone(),
            ..InstallOptions::default()
        }
    }
}

fn may_write(token: &WriteToken) -> impl Fn() -> bool + use<> {
    let token = token.clone();
    move || token.is_held()
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

async fn end_with(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}
