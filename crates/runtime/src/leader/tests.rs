#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use std::net::SocketAddr;

use axum::Router;
use axum::routing::post;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose as Usage, IsCa, Issuer, KeyPair};
use tokio::net::TcpListener;

use super::*;
use crate::serve::{ServeLimits, ServeMetrics, serve};
use crate::tls::{CertStore, ClientAuthority, ServerTls, mutual_tls, server_config};

const WEBHOOK: &str = "sluice-webhook.sluice-system.svc";
const LEADER: &str = "sluice-metrics.sluice-system.svc";

/// PEM.
struct Issued {
    certificate: String,
    key: String,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, names: &[&str], usages: &[Usage]) -> Issued {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }

    /// As the installation's certificate.
    fn shared(&self) -> Issued {
        self.issue(&[WEBHOOK, LEADER], &[Usage::ServerAuth, Usage::ClientAuth])
    }
}

struct Leader {
    address: SocketAddr,
    clients: Arc<ClientAuthority>,
    cancel: CancellationToken,
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Leader {
    async fn start(own: &Issued, asks_for_a_certificate: bool) -> Self {
        let certs = Arc::new(CertStore::empty());
        certs.set_pem(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
        let clients = ClientAuthority::new(WEBHOOK.to_owned());
        let tls = if asks_for_a_certificate {
            mutual_tls(certs, Arc::clone(&clients), Arc::default()).unwrap()
        } else {
            ServerTls::from(server_config(certs, None).unwrap())
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, cancel) = (listener.local_addr().unwrap(), CancellationToken::new());
        let app = Router::new().route("/growth", post(async || "decided"));
        let limits = ServeLimits::default();
        tokio::spawn(serve(listener, tls, app, limits, ServeMetrics::default(), cancel.clone()));
        Self { address, clients, cancel }
    }

    /// What a process with this identity is answered that trusts `bundle`.
    async fn asked_by(&self, own: &Issued, bundle: &str) -> Result<(StatusCode, Bytes), LeaderError> {
        crate::client::install_crypto_provider();
        let link = LeaderLink::new(LEADER.to_owned());
        let lease = json!({
            "metadata": { "annotations": { "address": self.address.to_string() } }, "spec": { "holderIdentity": "one" },
        });
        link.set_lease(Some(&serde_json::from_value(lease).unwrap()), "address");
        link.set_identity(bundle.as_bytes(), own.certificate.as_bytes(), own.key.as_bytes());
        link.post("/growth", Bytes::from_static(b"{}")).await
    }
}

fn answered(outcome: &Result<(StatusCode, Bytes), LeaderError>) -> bool {
    outcome.as_ref().is_ok_and(|(status, body)| *status == StatusCode::OK && body == "decided")
}

#[tokio::test]
async fn the_leader_answers_webhooks_of_the_installation_alone() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let leader = Leader::start(&ours.shared(), true).await;
    let refused = leader.asked_by(&ours.shared(), &ours.pem).await;
    assert!(!answered(&refused), "no authority is known yet: {refused:?}");
    assert!(leader.clients.set_pem(b"none").is_err());
    leader.clients.set_pem(ours.pem.as_bytes()).unwrap();
    let outcome = leader.asked_by(&ours.shared(), &ours.pem).await;
    assert!(answered(&outcome), "{outcome:?}");
    let both = [Usage::ServerAuth, Usage::ClientAuth];
    for (why, other) in [
        ("of another authority", foreign.shared()),
        ("of another name", ours.issue(&["sluice-other.sluice-system.svc"], &both)),
        ("for servers only", ours.issue(&[WEBHOOK, LEADER], &[Usage::ServerAuth])),
    ] {
        let outcome = leader.asked_by(&other, &ours.pem).await;
        assert!(!answered(&outcome), "a certificate {why}: {outcome:?}");
    }
    leader.clients.set_pem(foreign.pem.as_bytes()).unwrap();
    let outcome = leader.asked_by(&foreign.shared(), &ours.pem).await;
    assert!(answered(&outcome), "the authority was replaced: {outcome:?}");
}

#[tokio::test]
async fn no_process_but_one_of_the_installation_is_asked() {
    let (ours, new, foreign) = (Authority::new(), Authority::new(), Authority::new());
    let both = format!("{}{}", new.pem, ours.pem);
    for (own, is_ours) in [(ours.shared(), true), (new.shared(), true), (foreign.shared(), false)] {
        let leader = Leader::start(&own, false).await;
        let outcome = leader.asked_by(&ours.shared(), &both).await;
        assert_eq!(answered(&outcome), is_ours, "{outcome:?}");
    }
}
