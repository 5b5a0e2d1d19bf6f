//! What the webhook asks the controller that leads: whether pods and VMs may grow, and why something waits. Served by all
//! controllers, of which the leader decides.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Secret;
use sluice_api::{Endpoint, names};
use sluice_gate::{Gate, Judgement};
use sluice_manifests::certificates::{is_path, service_names};
use sluice_runtime::leader::LeaderLink;
use sluice_runtime::lease::WriteToken;
use sluice_runtime::listen::{anywhere, listen};
use sluice_runtime::serve::{ServeLimits, ServeMetrics, serve};
use sluice_runtime::shutdown::Tasks;
use sluice_runtime::tls::{CertStore, ClientAuthority, TlsProfile, mutual_tls, secret_entry};
use sluice_webhook::endpoints::explain::{ExplainLeader, Tell};
use sluice_webhook::endpoints::growth::{Growth, GrowthLeader, GrowthVerdict, Judge, Update};
use sluice_webhook::{App, BodyLimits, Decision, Settings, WebhookMetrics, router};
use tokio_util::sync::CancellationToken;

use crate::explain;

/// What the leader is asked.
pub struct Asked {
    /// Whether a pod or a VM may take more.
    judge: Judge,
    /// Why something waits.
    tell: Tell,
}

/// Flags about what the webhook asks.
#[derive(Debug, clap::Args)]
pub struct GrowthArgs {
    /// Where the webhook asks whether a pod may take more, over HTTPS
    #[arg(long, value_name = "ADDRESS", default_value_t = anywhere(names::GROWTH_PORT))]
    growth_listen: SocketAddr,
    /// The address of this process at which the webhook reaches that
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    pod_ip: Option<IpAddr>,
}

impl GrowthArgs {
    /// What the Lease says of its holder.
    pub fn address(&self) -> Option<SocketAddr> {
        let listen = Some(self.growth_listen.ip()).filter(|ip| !ip.is_unspecified());
        let address = self.pod_ip.or(listen)?;
        Some(SocketAddr::new(address, self.growth_listen.port()))
    }

    /// Serves the questions of webhooks that have a certificate of the installation.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn serve(
        &self,
        tasks: &mut Tasks,
        asked: Asked,
        (certs, clients, profile): (Arc<CertStore>, Arc<ClientAuthority>, Arc<TlsProfile>),
        metrics: WebhookMetrics,
        cancel: &CancellationToken,
    ) -> anyhow::Result<()> {
        let listener = listen(self.growth_listen)?;
        let tls = mutual_tls(certs, clients, profile)?;
        let app = App::new(Settings::new(names::INSTALL_NAMESPACE), BodyLimits::default(), metrics);
        let growth = (Endpoint::Growth, Decision::Async(Arc::new(GrowthLeader(asked.judge))));
        let explain = (Endpoint::Explain, Decision::Async(Arc::new(ExplainLeader::new(asked.tell))));
        let service = router(&app, [growth, explain]);
        let limits = ServeLimits::default();
        let serving = serve(listener, tls, service, limits, ServeMetrics::default(), cancel.clone());
        tasks.spawn("growth", async move {
            serving.await;
            Ok::<_, Infallible>(())
        });
        Ok(())
    }
}

/// Who may ask the leader: the webhook, by the name of its Service in its certificate.
pub fn asking(namespace: &str) -> Arc<ClientAuthority> {
    ClientAuthority::new(service_names(names::WEBHOOK, namespace).swap_remove(0))
}

/// What the leader needs of the Secret with the serving certificate to know who asks.
pub fn trust_clients(clients: &ClientAuthority, secret: &Secret) {
    let bundle = secret_entry(secret, names::CA_BUNDLE).unwrap_or_default();
    if let Err(error) = clients.set_pem(bundle) {
        tracing::warn!(secret = names::SERVING_SECRET, %error, "authorities of the webhook not replaced");
    }
}

/// Asks the gate, as long as this process leads. `identity` is how its Lease names it.
pub fn asked(gate: &Gate, token: &WriteToken, identity: &str) -> Asked {
    Asked {
        judge: judge(gate.clone(), token.clone()),
        tell: explain::tell(gate.clone(), token.clone(), identity),
    }
}

fn judge(gate: Gate, token: WriteToken) -> Judge {
    Box::new(move |growth: Growth| {
        let (gate, token) = (gate.clone(), token.clone());
        async move {
            let judgement = match &growth.update {
                Update::Pod(pod, text) => {
                    gate.admit_with_text(&pod.before, &pod.after, Some(text), growth.dry_run).await
                }
                Update::Machine(vm) => gate.admit_machine(&vm.before, &vm.after, growth.dry_run).await,
            };
            match judgement {
                // What another leader has given away meanwhile is not known here.
                Judgement::Allowed if !token.is_held() => {
                    GrowthVerdict::Undecided("the leader changes".to_owned())
                }
                Judgement::Allowed => GrowthVerdict::Allowed,
                Judgement::Refused(words) => GrowthVerdict::Refused(words),
                Judgement::Undecided(why) => GrowthVerdict::Undecided(why.into_owned()),
            }
        }
        .boxed()
    })
}

/// The segments before the paths that a Secret with the serving certificate names.
pub fn segments(secret: &Secret) -> impl Iterator<Item = &str> {
    [names::SECRET_PATH, names::SECRET_PATH_BEFORE]
        .into_iter()
        .filter_map(|key| std::str::from_utf8(secret_entry(secret, key)?).ok())
        .filter(|text| is_path(text))
}

/// A link to the controller that leads.
pub fn leader_link(namespace: &str) -> Arc<LeaderLink> {
    let name = service_names(names::METRICS_SERVICE, namespace).swap_remove(0);
    LeaderLink::new(name)
}

/// What the link needs of the Secret with the serving certificate.
pub fn identify(link: &LeaderLink, secret: &Secret) {
    let entry = |key| secret_entry(secret, key);
    if let (Some(bundle), Some(certificate), Some(key)) =
        (entry(names::CA_BUNDLE), entry(names::TLS_CERT), entry(names::TLS_KEY))
    {
        link.set_identity(bundle, certificate, key);
    }
}
