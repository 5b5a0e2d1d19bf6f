//! A client of the webhook that is not the API server: sends what it likes, looks at the certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A client that can reach the webhook's port. Each call makes a connection of its own.
#[derive(Clone)]
pub struct Wire {
    address: String,
    connector: TlsConnector,
}

impl Wire {
    /// For the server at `address` (`host:port`), whose certificate has to come from one of the authorities in
    /// `ca_pem`.
    ///
    /// # Errors
    /// When the PEM holds no certificate.
    pub fn new(address: &str, ca_pem: &[u8]) -> anyhow::Result<Self> {
        Self::speaking(rustls::DEFAULT_VERSIONS, address, ca_pem)
    }

    /// As [`Self::new`], with these versions of TLS alone.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn speaking(
        versions: &[&'static rustls::SupportedProtocolVersion],
        address: &str,
        ca_pem: &[u8],
    ) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            roots.add(certificate.context("reading the authorities")?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { address: address.to_owned(), connector: TlsConnector::from(Arc::new(config)) })
    }

    /// The address without the port, which the certificate is for.
    fn host(&self) -> String {
        let address = self.address.parse::<SocketAddr>();
        address.map_or_else(|_| "127.0.0.1".to_owned(), |address| address.ip().to_string())
    }

    async fn connect(&self, name: &str) -> anyhow::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(name.to_owned())?;
        let tcp = TcpStream::connect(&self.address).await?;
        Ok(self.connector.connect(name, tcp).await?)
    }

    /// The certificate (DER) that the server shows when it is called by `name`.
    ///
    /// # Errors
    /// When it cannot be reached, is not trusted, or is not `name`.
    pub async fn certificate(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let stream = self.connect(name).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(chain.first().context("the server showed no certificate")?.to_vec())
    }

    /// One HTTP/1.1 request; status and body of its answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(&self, request: http::Request<Vec<u8>>) -> anyhow::Result<(u16, String)> {
        let stream = self.connect(&self.host()).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = request.map(|body| Full::new(Bytes::from(body)));
        let answer = sender.send_request(request).await.context("sending a request")?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        drop(sender);
        connection.abort();
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Sends these bytes over TLS, says that nothing more comes, and returns what the server sends until it closes.
    ///
    /// # Errors
    /// When no connection can be made.
    pub async fn send_raw(&self, bytes: &[u8]) -> anyhow::Result<String> {
        let mut stream = self.connect(&self.host()).await?;
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        // A server may close without goodbye when it is sent nonsense.
        let _ = stream.read_to_end(&mut answer).await;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
