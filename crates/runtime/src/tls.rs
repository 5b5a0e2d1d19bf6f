//! The serving certificate: kept in memory, replaced while the server runs.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use crate::health::CheckResult;

mod clients;
mod files;
mod profile;
mod secret;

pub use clients::ClientAuthority;
pub use files::watch_files;
pub use profile::{ServerTls, TlsProfile};
pub use secret::{secret_entry, watch_secret};

/// Why a certificate was refused. What was served before stays in use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The chain is not PEM or empty.
    #[error("certificate chain is not usable: {0}")]
    Chain(String),
    /// The key is not PEM or of an unknown kind.
    #[error("private key is not usable: {0}")]
    Key(String),
    /// The key does not belong to the certificate.
    #[error("private key does not belong to the certificate: {0}")]
    Mismatch(#[source] rustls::Error),
    /// The certificate ended its life.
    #[error("certificate expired at {0}; issue a new one")]
    Expired(Timestamp),
    /// The authorities of clients are not PEM, or none.
    #[error("authorities of clients are not usable: {0}; give a PEM file with at least one certificate")]
    ClientCa(String),
    /// The files cannot be watched for changes.
    #[error("cannot watch {path} for changes: {source}")]
    Watch {
        /// Directory of the file.
        path: String,
        /// What the system said.
        #[source]
        source: notify::Error,
    },
    /// None of the cipher suites of a profile is known.
    #[error(
        "no cipher suite of the profile is known to the TLS library; name one of ECDHE with AES-GCM, or of TLS 1.3"
    )]
    NoSuite,
    /// The TLS configuration cannot be built.
    #[error("cannot build the TLS configuration: {0}")]
    Config(#[source] rustls::Error),
}

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From its issue, which may be dated back, on.
    pub from: Timestamp,
    /// To its end.
    pub until: Timestamp,
}

impl Validity {
    /// Of the first certificate in this PEM; `None` if there is none that can be read.
    #[must_use]
    pub fn of_pem(chain: &[u8]) -> Option<Self> {
        let first = CertificateDer::pem_slice_iter(chain).next()?.ok()?;
        validity(&first).ok()
    }
}

#[derive(Debug)]
struct Loaded {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

/// The certificate that new handshakes get. Connections that exist keep theirs.
#[derive(Debug, Default)]
pub struct CertStore {
    current: ArcSwapOption<Loaded>,
}

impl CertStore {
    /// Holds no certificate; handshakes fail until [`CertStore::set_pem`].
    pub fn empty() -> Self {
        Self::default()
    }

    /// Replaces the certificate. Returns whether it differs from the one in use.
    ///
    /// # Errors
    /// When the chain or the key cannot be read, they do not belong together, or the certificate has expired; what is in use
    /// stays.
    pub fn set_pem(&self, chain: &[u8], key: &[u8]) -> Result<bool, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| TlsError::Chain(error.to_string()))?;
        let first = chain.first().ok_or_else(|| TlsError::Chain("it holds no certificate".to_owned()))?;
        let validity = validity(first)?;
        let not_after = validity.until;
        if not_after <= Timestamp::now() {
            return Err(TlsError::Expired(not_after));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Key(error.to_string()))?;
        let key =
            aws_lc_rs::sign::any_supported_type(&key).map_err(|error| TlsError::Key(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(TlsError::Mismatch)?;
        let same = self.current.load().as_ref().is_some_and(|loaded| loaded.key.cert == certified.cert);
        if same {
            return Ok(false);
        }
        self.current.store(Some(Arc::new(Loaded { key: Arc::new(certified), validity })));
        tracing::info!(%not_after, "serving certificate replaced");
        Ok(true)
    }

    /// End of life of the certificate in use.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.validity().map(|validity| validity.until)
    }

    /// Beginning and end of the certificate in use.
    pub fn validity(&self) -> Option<Validity> {
        self.current.load().as_ref().map(|loaded| loaded.validity)
    }

    /// A readiness check.
    ///
    /// # Errors
    /// When there is no certificate, or it has expired.
    pub fn check(&self) -> CheckResult {
        match self.not_after() {
            None => Err("no serving certificate yet".to_owned()),
            Some(end) if end <= Timestamp::now() => Err(format!("serving certificate expired at {end}")),
            Some(_) => Ok(()),
        }
    }
}

impl ResolvesServerCert for CertStore {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load().as_ref().map(|loaded| loaded.key.clone())
    }
}

fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, TlsError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| TlsError::Chain(format!("its first certificate cannot be parsed: {error}")))?;
    let moment = |what: &str, second: i64| {
        Timestamp::from_second(second)
            .map_err(|error| TlsError::Chain(format!("its {what} date cannot be represented: {error}")))
    };
    let validity = parsed.validity();
    Ok(Validity {
        from: moment("begin", validity.not_before.timestamp())?,
        until: moment("end", validity.not_after.timestamp())?,
    })
}

/// TLS 1.2 and 1.3, ALPN `http/1.1`, session tickets, certificate from `store`. With `client_ca`, PEM of authorities, only
/// clients with a certificate of one of them get in.
///
/// # Errors
/// When `client_ca` holds no certificate, or the library refuses the configuration.
pub fn server_config(
    store: Arc<CertStore>,
    client_ca: Option<&[u8]>,
) -> Result<rustls::ServerConfig, TlsError> {
    profile::config_of(store, clients_of(client_ca)?, aws_lc_rs::DEFAULT_CIPHER_SUITES)
}

/// As [`server_config`], with the suites and versions of `profile`, also when it changes.
///
/// # Errors
/// As [`server_config`].
pub fn server_tls(
    store: Arc<CertStore>,
    client_ca: Option<&[u8]>,
    profile: Arc<TlsProfile>,
) -> Result<ServerTls, TlsError> {
    ServerTls::following(store, clients_of(client_ca)?, profile)
}

/// As [`server_tls`], for the clients that `clients` lets in.
///
/// # Errors
/// When the library refuses the configuration.
pub fn mutual_tls(
    store: Arc<CertStore>,
    clients: Arc<ClientAuthority>,
    profile: Arc<TlsProfile>,
) -> Result<ServerTls, TlsError> {
    ServerTls::following(store, Some(clients), profile)
}

fn clients_of(client_ca: Option<&[u8]>) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    client_ca.map(|pem| verifier(pem, Arc::new(aws_lc_rs::default_provider()))).transpose()
}

fn verifier(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |error: &dyn std::fmt::Display| TlsError::ClientCa(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| unusable(&error))
}

#[cfg(test)]
pub(crate) mod tests;
