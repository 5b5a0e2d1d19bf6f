//! Reaching the process that holds a lease, from other processes of the same installation.
//!
//! The holder's address is an annotation of the lease, which all accounts that may update the lease can change. So the
//! address is not trusted: the process that answers there must have a certificate of the installation's own authority, and
//! the one that asks shows its own.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::client::{ClientOptions, client_from};
use crate::watch::{Event, WatchHealth, WatchOptions, WentBack, watch};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// The lease has no holder or no address, or the authority is not known yet.
    #[error("no leader is known")]
    Unknown,
    /// The connection or the request failed.
    #[error("could not ask the leader: {0}")]
    Failed(String),
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Known {
    address: Option<String>,
    authorities: Vec<Vec<u8>>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The way to the leader; it changes when another one leads, and with the certificates.
pub struct LeaderLink {
    name: String,
    known: Mutex<Known>,
    link: ArcSwapOption<Client>,
}

impl std::fmt::Debug for LeaderLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderLink").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LeaderLink {
    /// To a leader whose certificate is for the DNS name `name`.
    #[must_use]
    pub fn new(name: String) -> Arc<Self> {
        Arc::new(Self { name, known: Mutex::default(), link: ArcSwapOption::empty() })
    }

    /// The leader's certificate has to be of one of the authorities in `bundle`; this process shows `certificate` with
    /// `key`. All PEM.
    pub fn set_identity(&self, bundle: &[u8], certificate: &[u8], key: &[u8]) {
        let authorities = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
        let authorities = authorities.map(|authority| authority.to_vec()).collect();
        self.change(|known| {
            known.authorities = authorities;
            known.certificate = certificate.to_vec();
            known.key = key.to_vec();
        });
    }

    fn set_lease(&self, lease: Option<&Lease>, annotation: &str) {
        let holder =
            lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref()).unwrap_or_default();
        let address = lease.and_then(|lease| lease.metadata.annotations.as_ref()?.get(annotation));
        let address = address.filter(|_| !holder.is_empty()).cloned();
        self.change(|known| known.address = address);
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.lock();
        let before = known.clone();
        change(&mut known);
        if *known == before {
            return;
        }
        let link = self.build(&known);
        tracing::info!(address = known.address, reachable = link.is_some(), "leader");
        self.link.store(link.map(Arc::new));
    }

    fn build(&self, known: &Known) -> Option<Client> {
        let url = format!("https://{}", known.address.as_ref()?).parse().ok()?;
        if known.authorities.is_empty() {
            return None;
        }
        let mut config = Config::new(url);
        config.root_cert = Some(known.authorities.clone());
        config.tls_server_name = Some(self.name.clone());
        let identity = json!({
            "client-certificate-data": ByteString(known.certificate.clone()),
            "client-key-data": ByteString(known.key.clone()),
        });
        config.auth_info = serde_json::from_value(identity).ok()?;
        let options = ClientOptions { connect_timeout: Duration::from_secs(1), ..ClientOptions::default() };
        client_from(config, &options).map_err(|error| tracing::warn!(%error, "no way to the leader")).ok()
    }

    /// Keeps the address as the annotation of the lease says, until `cancel`.
    ///
    /// # Errors
    /// As [`watch`].
    pub async fn follow(
        self: Arc<Self>,
        client: Client,
        (namespace, lease): (String, &'static str),
        annotation: &'static str,
        cancel: CancellationToken,
    ) -> Result<(), WentBack> {
        let options = WatchOptions::default().fields(format!("metadata.name={lease}"));
        let sink = |event| match event {
            Event::InitApply(lease) | Event::Apply(lease) => self.set_lease(Some(&lease), annotation),
            Event::Delete::<Lease>(_) => self.set_lease(None, annotation),
            Event::Init | Event::InitDone => {}
        };
        watch(Api::namespaced(client, &namespace), options, sink, WatchHealth::new("leases"), cancel).await
    }

    /// Sends JSON to a path of the leader.
    ///
    /// # Errors
    /// When there is no answer; the leader may have got it all the same. There is no limit to the time that it takes.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), LeaderError> {
        let link = self.link.load_full().ok_or(LeaderError::Unknown)?;
        let failed = |error: &dyn std::fmt::Display| LeaderError::Failed(error.to_string());
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| failed(&error))?;
        let response = link.send(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| failed(&error))?;
        Ok((status, body.to_bytes()))
    }
}

#[cfg(test)]
mod tests;
