//! Which cipher suites and versions of TLS servers accept, changed while they run.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};

use super::{CertStore, TlsError};

/// The cipher suites that the servers of a process accept in new handshakes. Connections that exist go on.
#[derive(Debug)]
pub struct TlsProfile {
    suites: ArcSwap<Vec<SupportedCipherSuite>>,
}

impl Default for TlsProfile {
    /// All suites of the library that are good for anybody: of TLS 1.2 and 1.3.
    fn default() -> Self {
        Self { suites: ArcSwap::from_pointee(aws_lc_rs::DEFAULT_CIPHER_SUITES.to_vec()) }
    }
}

impl TlsProfile {
    /// The numbers of the suites that are accepted.
    pub fn suites(&self) -> impl Iterator<Item = u16> + use<> {
        let suites = self.suites.load_full();
        let codes: Vec<_> = suites.iter().map(|suite| u16::from(suite.suite())).collect();
        codes.into_iter()
    }

    /// Accepts from the next handshake on only the suites that have these numbers in IANA's registry, and the versions that
    /// they are of. Numbers that the library does not know are skipped. Returns whether that differs from what is accepted.
    ///
    /// # Errors
    /// When the library knows none of them; what was accepted before is.
    pub fn accept(&self, codes: &[u16]) -> Result<bool, TlsError> {
        let is_named = |suite: &&SupportedCipherSuite| codes.contains(&u16::from(suite.suite()));
        // In the library's order: which of the suites is taken, the client says.
        let suites: Vec<_> = aws_lc_rs::DEFAULT_CIPHER_SUITES.iter().filter(is_named).copied().collect();
        if suites.is_empty() {
            return Err(TlsError::NoSuite);
        }
        if **self.suites.load() == suites {
            return Ok(false);
        }
        tracing::info!(?suites, "servers accept other cipher suites in new handshakes");
        self.suites.store(Arc::new(suites));
        Ok(true)
    }
}

/// How a server makes handshakes: with the certificate and the profile that hold when one begins.
#[derive(Debug)]
pub struct ServerTls {
    /// `None`: what was built first holds for ever.
    source: Option<Source>,
    built: ArcSwap<Built>,
}

/// What configurations are built from.
#[derive(Debug)]
struct Source {
    store: Arc<CertStore>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    profile: Arc<TlsProfile>,
}

/// A configuration and the suites that it was built for.
#[derive(Debug)]
struct Built {
    suites: Arc<Vec<SupportedCipherSuite>>,
    config: Arc<ServerConfig>,
}

impl From<ServerConfig> for ServerTls {
    fn from(config: ServerConfig) -> Self {
        let built = Built { suites: Arc::default(), config: Arc::new(config) };
        Self { source: None, built: ArcSwap::from_pointee(built) }
    }
}

impl ServerTls {
    pub(super) fn following(
        store: Arc<CertStore>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        profile: Arc<TlsProfile>,
    ) -> Result<Self, TlsError> {
        let source = Source { store, clients, profile };
        let built = source.build(source.profile.suites.load_full())?;
        Ok(Self { source: Some(source), built: ArcSwap::from_pointee(built) })
    }

    /// For a handshake that begins now.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        let built = self.built.load_full();
        let Some(source) = &self.source else { return Arc::clone(&built.config) };
        let suites = source.profile.suites.load_full();
        if Arc::ptr_eq(&suites, &built.suites) {
            return Arc::clone(&built.config);
        }
        // The tickets are new too: no session of the profile before is resumed.
        match source.build(Arc::clone(&suites)) {
            Ok(new) => {
                let config = Arc::clone(&new.config);
                self.built.store(Arc::new(new));
                config
            }
            Err(error) => {
                tracing::error!(%error, "TLS profile not taken; the one before stays in use");
                // The new profile is not tried again at each handshake.
                let config = Arc::clone(&built.config);
                self.built.store(Arc::new(Built { suites, config: Arc::clone(&config) }));
                config
            }
        }
    }
}

impl Source {
    fn build(&self, suites: Arc<Vec<SupportedCipherSuite>>) -> Result<Built, TlsError> {
        let config = config_of(Arc::clone(&self.store), self.clients.clone(), &suites)?;
        Ok(Built { suites, config: Arc::new(config) })
    }
}

/// With these suites, and the versions that they are of.
pub(super) fn config_of(
    store: Arc<CertStore>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    suites: &[SupportedCipherSuite],
) -> Result<ServerConfig, TlsError> {
    let is_served =
        |version: &&&SupportedProtocolVersion| suites.iter().any(|suite| suite.version() == **version);
    let versions: Vec<_> = [&version::TLS13, &version::TLS12].iter().filter(is_served).copied().collect();
    let provider = CryptoProvider { cipher_suites: suites.to_vec(), ..aws_lc_rs::default_provider() };
    let builder = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions)
        .map_err(TlsError::Config)?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(store);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Config)?;
    Ok(config)
}
