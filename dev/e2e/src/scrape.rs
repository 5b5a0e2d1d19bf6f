//! Reads the metrics of our programs as monitoring does: over TLS, with an account that may.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use rustls::SupportedProtocolVersion;
use serde_json::json;
use sluice_api::names;
use sluice_manifests::InstallOptions;
use sluice_testbed::Bed;

use crate::wire::Wire;

/// The account, in the namespace of the installation, that is bound to the shipped role of scrapers.
const SCRAPER: &str = "scraper";

/// What it takes to read the metrics of the programs of one installation.
#[derive(Clone)]
pub(crate) struct Scraper {
    token: String,
    admin: Config,
    /// Of the bed, for programs that serve with a certificate of it.
    ca_pem: String,
    namespace: String,
    /// Secret of the installation's own authority.
    authority: &'static str,
}

impl Scraper {
    /// An account that may read them in the installation with these `options`.
    pub(crate) async fn on(bed: &Bed, options: &InstallOptions) -> anyhow::Result<Self> {
        let (namespace, authority) = (options.namespace.clone(), options.naming.parts().authority);
        let subject = json!({ "kind": "ServiceAccount", "name": SCRAPER, "namespace": namespace });
        bed.apply_objects([
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "name": SCRAPER, "namespace": namespace },
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": { "name": "scraper" },
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": names::METRICS_READER,
                },
                "subjects": [subject],
            }),
        ])
        .await?;
        let token = token(&bed.admin()?, &namespace, SCRAPER).await?;
        let (admin, ca_pem) = (bed.admin_identity().config(), bed.ca_pem().to_owned());
        Ok(Self { token, admin, ca_pem, namespace, authority })
    }

    async fn read(&self, address: &str) -> anyhow::Result<(u16, String)> {
        get(&Wire::new(address, &self.trusted().await?)?, Some(&self.token)).await
    }

    /// The authorities that may have issued a certificate for metrics.
    async fn trusted(&self) -> anyhow::Result<Vec<u8>> {
        let client = Client::try_from(self.admin.clone())?;
        let secrets: Api<Secret> = Api::namespaced(client, &self.namespace);
        let mut trusted = self.ca_pem.clone().into_bytes();
        // An authority of ours is not there, or no API server to ask for it.
        if let Ok(Some(secret)) = secrets.get_opt(self.authority).await
            && let Some(bundle) = secret.data.as_ref().and_then(|data| data.get(names::CA_BUNDLE))
        {
            trusted.extend_from_slice(&bundle.0);
        }
        Ok(trusted)
    }
}

/// A token of a ServiceAccount.
///
/// # Errors
/// When the API server gives none.
pub async fn token(client: &Client, namespace: &str, account: &str) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [] } }))?;
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    answer.status.and_then(|status| status.token).context("the answer carries no token")
}

/// Asks for metrics; status and text.
///
/// # Errors
/// When there is no answer.
pub async fn get(wire: &Wire, token: Option<&str>) -> anyhow::Result<(u16, String)> {
    let mut request = http::Request::get(names::PATH_METRICS).header("Host", "metrics");
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    wire.send(request.body(Vec::new())?).await
}

/// By the address of a program's probes: where its metrics are, and who reads them.
static KNOWN: Mutex<BTreeMap<String, (String, Scraper)>> = Mutex::new(BTreeMap::new());

/// Remembers that the program with its probes at `admin` has its metrics at `metrics`.
pub(crate) fn register(admin: &str, metrics: &str, scraper: &Scraper) {
    KNOWN.lock().insert(admin.to_owned(), (metrics.to_owned(), scraper.clone()));
}

/// Where the program with its probes at `admin` has its metrics.
#[must_use]
pub fn address(admin: &str) -> Option<String> {
    KNOWN.lock().get(admin).map(|(metrics, _)| metrics.clone())
}

/// Whether the program with its probes at `admin` answers at the port of its metrics who speaks this version of TLS alone.
///
/// # Errors
/// When no such program is known, or its authority cannot be read.
pub async fn speaks(admin: &str, version: &'static SupportedProtocolVersion) -> anyhow::Result<bool> {
    let known = KNOWN.lock().get(admin).cloned();
    let (metrics, scraper) = known.context("a program whose metrics are not known")?;
    let wire = Wire::speaking(&[version], &metrics, &scraper.trusted().await?)?;
    Ok(get(&wire, Some(&scraper.token)).await.is_ok_and(|(code, _)| code == 200))
}

/// The metrics of a program that an installation started; `None` if it is no such program.
pub(crate) async fn of(admin: &str) -> Option<anyhow::Result<(u16, String)>> {
    let (metrics, scraper) = KNOWN.lock().get(admin).cloned()?;
    Some(scraper.read(&metrics).await)
}
