//! Clients with a certificate of an authority that changes while the server runs.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::{TlsError, verifier};

/// The authorities of the clients of one name.
#[derive(Debug)]
pub struct ClientAuthority {
    name: String,
    provider: Arc<CryptoProvider>,
    current: ArcSwapOption<Arc<dyn ClientCertVerifier>>,
}

impl ClientAuthority {
    /// Refuses all clients until [`Self::set_pem`]; then it accepts clients whose certificate is for the DNS name `name`.
    #[must_use]
    pub fn new(name: String) -> Arc<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Arc::new(Self { name, provider, current: ArcSwapOption::empty() })
    }

    /// Trusts the authorities of a bundle, and no others, from the next handshake on.
    ///
    /// # Errors
    /// When the bundle holds no certificate or cannot be read; what was trusted before is.
    pub fn set_pem(&self, bundle: &[u8]) -> Result<(), TlsError> {
        self.current.store(Some(Arc::new(verifier(bundle, Arc::clone(&self.provider))?)));
        Ok(())
    }
}

impl ClientCertVerifier for ClientAuthority {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Without hints clients show what they have.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let failed = |why: &str| Error::General(why.to_owned());
        let current = self.current.load_full();
        let current = current.ok_or_else(|| failed("the authority of clients is not known yet"))?;
        let verified = current.verify_client_cert(end_entity, intermediates, now)?;
        let name = ServerName::try_from(self.name.as_str());
        let name = name.map_err(|_| failed("the name of clients is no DNS name"))?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
