//! `sluice operator`: makes and keeps the installation's controller and webhook, admission objects and certificates, as the
//! `AAQ` asks, and says how they are, with an identity that may do nothing else.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use sluice_api::names;
use sluice_manifests::{InstallOptions, NamespaceUse, WebhookClient};
use sluice_operator::admission_config::{self, AdmissionMetrics};
use sluice_operator::certificates::{self, CertificateSettings, Secrets};
use sluice_operator::installation::{self, Asked, InstallationSettings, Told, follow_asked};
use sluice_operator::presence::{Presence, Removal};
use sluice_operator::{AdmissionTroubles, keep_account};
use sluice_runtime::about::About;
use sluice_runtime::client::{ClientOptions, ServerVersion, connect};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::events::recorder;
use sluice_runtime::health::Admin;
use sluice_runtime::lease::{Election, Leadership, LeaseOptions, WriteToken};
use sluice_runtime::shutdown::{Tasks, on_signal};
use sluice_runtime::tls::{CertStore, TlsProfile, Validity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::existence::Remover;
use crate::gating::gating_at;
use crate::lease::LeaseArgs;
use crate::metrics::MetricsArgs;
use crate::options::{OptionsArgs, OptionsError};
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
    options: OptionsArgs,
    /// Name of the pod that this process runs in: its operands get the image of that pod
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pod_name: Option<String>,
    /// A further username that may remove the gate from pods; repeatable
    #[arg(long, value_name = "USERNAME")]
    allowed_gate_remover: Vec<String>,
    /// The version that the status of AAQ and MTQ says; that of this program if not given. For programs that wait for a
    /// version of application-aware-quota
    #[arg(long, env = "OPERATOR_VERSION", value_name = "VERSION")]
    reported_version: Option<String>,
    /// Write again what an operator of a newer version has written: to go back to this version
    #[arg(long)]
    allow_downgrade: bool,
}

/// Runs until a signal, the loss of the lease, or the end of a task.
///
/// # Errors
/// When something needed from the start is missing, the lease is lost or a task ends early.
pub async fn run(args: OperatorArgs) -> anyhow::Result<()> {
    let cancel = on_signal().context("could not install signal handlers")?;
    // The lease is renewed all the time, so the clock is fresh.
    let clock = Arc::new(ServerClock::default());
    let options = ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        user_agent: format!("{}/{}", names::OPERATOR, env!("CARGO_PKG_VERSION")),
        clock: Some(Arc::clone(&clock)),
        ..ClientOptions::default()
    };
    let client = connect(&options).await?;
    let version = ServerVersion::fetch(&client).await?;
    tracing::info!(server = %format!("{}.{}", version.major, version.minor), "connected");
    let files = args.options.read()?;
    let wanted = args.install_options(own_image(&client, &args).await?)?;

    let mut lease = LeaseOptions::new(&args.namespace, names::OPERATOR);
    lease.timings = args.lease.timings()?;
    lease.labels = crate::lease::labels();
    let identity = lease.identity.clone();
    let election = Election::new(client.clone(), lease)?;
    let (token, leadership) = (election.token(), election.leadership());

    let mut tasks = Tasks::new();
    let (certs, profile) = (Arc::new(CertStore::empty()), Arc::new(TlsProfile::default()));
    let secrets = Secrets::new(wanted.naming.parts(), wanted.cert_manager.is_some());
    let (events, writer) = recorder(client.clone(), names::OPERATOR, &identity);
    let contests = AdmissionMetrics::default();
    let mut registry = Registry::default();
    contests.register(&mut registry);
    events.counts().register(registry.sub_registry_with_prefix("sluice"));
    let (serving, authority) = (Arc::clone(&certs), secrets.clone());
    let about = About::new("operator", env!("CARGO_PKG_VERSION"))
        .leading(token.clone())
        .certificate("serving", move || serving.validity())
        .certificate("authority", move || Validity::of_pem(authority.authority()?.as_bytes()));
    registry.register_collector(Box::new(about));
    let seen_by = (Arc::clone(&certs), Arc::clone(&profile), client.clone());
    args.metrics.serve(&mut tasks, Admin::default(), registry, seen_by, &cancel)?;
    let (asking, asked) = watch::channel(None);
    let following = follow_asked(client.clone(), asking, cancel.clone());
    tasks.spawn("what AAQ and MTQ ask of this process", end_with(following));
    tasks.spawn("TLS profile", end_with(ProfileKeeper::new(profile).follow(asked.clone())));
    let changed = args.options.clone();
    let ending = cancel.clone();
    tasks.spawn("options", end_with(async move { changed.until_changed(files, ending).await }));
    let watching = secrets.clone().observe(client.clone(), args.namespace.clone(), cancel.clone());
    tasks.spawn("secrets", watching);
    let loading = secrets.clone().load_serving(move |secret| certs.load_secret(secret), cancel.clone());
    tasks.spawn("certificate secret", end_with(loading));

    let lead = (&token, &leadership);
    keep_certificates(&mut tasks, (&args, &wanted), &client, (&secrets, asked), lead, &cancel);
    let upgrade = end_when_gated_otherwise(client.clone(), wanted.gating, version, cancel.clone());
    tasks.spawn("version of the API server", end_with(upgrade));
    let (troubles, of_admission) = watch::channel(AdmissionTroubles::default());
    let (presence, is_present) = watch::channel(Presence::default());
    let (removal, removed) = watch::channel(Removal::default());
    let configuration = admission_config::run(
        client.clone(),
        secrets,
        InstallOptions { gating: gating_at(&version, wanted.gating), ..wanted.clone() },
        (is_present.clone(), removed.clone()),
        (troubles, contests),
        may_write(&token),
        cancel.clone(),
    );
    tasks.spawn("admission configuration", once_leading(leadership.clone(), cancel.clone(), configuration));
    let removing = Remover::new(options, &args.namespace, removal).await?.run(
        is_present,
        may_write(&token),
        cancel.clone(),
    );
    tasks.spawn("removal", once_leading(leadership.clone(), cancel.clone(), removing));
    tasks.spawn("events", end_with(writer.run(cancel.clone())));
    // What the operands are told is what is wanted: they ask API servers themselves.
    let settings = InstallationSettings::new(wanted, args.reported_version.as_deref());
    let told = Told { admission: of_admission, removal: removed, presence, events };
    let keeping = installation::run((client, clock), settings, told, may_write(&token), cancel.clone());
    tasks.spawn("installation", once_leading(leadership, cancel.clone(), keeping));
    // The lease is given back when nothing is written any more.
    tasks.spawn("election", election.run(cancel.clone()));
    tasks.supervise(cancel, GRACE).await?;
    Ok(())
}

/// Starts the loops that keep certificates, tell of their authorities, and keep the account that others look for.
fn keep_certificates(
    tasks: &mut Tasks,
    (args, wanted): (&OperatorArgs, &InstallOptions),
    client: &Client,
    (secrets, asked): (&Secrets, watch::Receiver<Option<Asked>>),
    (token, leadership): (&WriteToken, &watch::Receiver<Leadership>),
    cancel: &CancellationToken,
) {
    let mut settings = CertificateSettings::new(&args.namespace, wanted.naming.parts());
    settings.names.extend(args.webhook_san.iter().cloned());
    settings.issuer.clone_from(&wanted.cert_manager);
    let (at, known, may) = (client.clone(), secrets.clone(), may_write(token));
    let bundle = certificates::keep_bundle(at, known, settings.clone(), may, cancel.clone());
    tasks.spawn("authorities", once_leading(leadership.clone(), cancel.clone(), bundle));
    let account = keep_account(client.clone(), wanted.clone(), may_write(token), cancel.clone());
    tasks.spawn("account", once_leading(leadership.clone(), cancel.clone(), account));
    let (at, known, may) = (client.clone(), secrets.clone(), may_write(token));
    let certificates = certificates::run(at, known, settings, asked, may, cancel.clone());
    tasks.spawn("certificates", once_leading(leadership.clone(), cancel.clone(), certificates));
}

impl OperatorArgs {
    /// What is kept in force, whatever the version of the cluster.
    fn install_options(&self, image: Option<String>) -> Result<InstallOptions, OptionsError> {
        let base = InstallOptions {
            namespace: self.namespace.clone(),
            // It is there already, whosoever it is.
            namespace_use: NamespaceUse::Own,
            ..InstallOptions::default()
        };
        let mut options = self.options.over(base)?;
        if let Some(url) = &self.webhook_url {
            options.webhook_client = WebhookClient::Url(url.clone());
        }
        options.allow_downgrade |= self.allow_downgrade;
        options.further_gate_removers.extend(self.allowed_gate_remover.iter().cloned());
        options.image = image.unwrap_or(options.image);
        options.validate()?;
        Ok(options)
    }
}

/// The image of the pod that this process runs in; `None` without a pod.
///
/// Operands get it, and not what the Deployment or an option says: Helm and the `images:` of a kustomization set the image
/// in one place then, and while the Deployment is rolled each operator gives its operands the version whose arguments it
/// knows.
async fn own_image(client: &Client, args: &OperatorArgs) -> anyhow::Result<Option<String>> {
    let Some(name) = &args.pod_name else { return Ok(None) };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &args.namespace);
    let pod = pods.get(name).await.with_context(|| format!("could not read the own pod {name}"))?;
    image_of(pod.spec.unwrap_or_default())
}

fn image_of(spec: PodSpec) -> anyhow::Result<Option<String>> {
    let account = spec.service_account_name.unwrap_or_default();
    anyhow::ensure!(
        account == names::OPERATOR,
        "the own pod runs under the account {account:?} in place of {}: names are what the processes look for, so leave \
         namePrefix and nameSuffix out",
        names::OPERATOR
    );
    let own = spec.containers.iter().find(|container| container.name == names::OPERATOR);
    Ok(own.or_else(|| spec.containers.first()).and_then(|container| container.image.clone()))
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Container;

    use super::*;

    fn pod(account: &str) -> PodSpec {
        let container = |name: &str| Container {
            name: name.to_owned(),
            image: Some(format!("registry.example.com/{name}:1")),
            ..Container::default()
        };
        PodSpec {
            service_account_name: Some(account.to_owned()),
            containers: vec![container("injected"), container(names::OPERATOR)],
            ..PodSpec::default()
        }
    }

    #[test]
    fn operands_get_the_image_of_the_own_container() {
        let image = image_of(pod(names::OPERATOR)).ok().flatten();
        assert_eq!(image.as_deref(), Some("registry.example.com/sluice-operator:1"));
    }

    /// As a kustomization with `namePrefix` makes it.
    #[test]
    fn an_account_of_another_name_ends_the_operator_with_the_remedy() {
        let said = image_of(pod("team-sluice-operator")).map_err(|error| error.to_string());
        assert_eq!(
            said,
            Err("the own pod runs under the account \"team-sluice-operator\" in place of sluice-operator: names are what \
                 the processes look for, so leave namePrefix and nameSuffix out"
                .to_owned())
        );
    }
}
