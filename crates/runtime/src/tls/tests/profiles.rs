//! Handshakes over loopback by what a server's profile and a client's versions and suites are.

use super::*;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, ProtocolVersion, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const ALL: &[u16] = &[0x1301, 0x1302, 0x1303, 0xc02b, 0xc02c, 0xcca9, 0xc02f, 0xc030, 0xcca8];
const MODERN: &[u16] = &[0x1301, 0x1302, 0x1303];

struct Server {
    address: std::net::SocketAddr,
    profile: Arc<TlsProfile>,
    issued: Issued,
}

impl Server {
    /// Sends back what it gets, over as many connections as there are.
    async fn start(codes: &[u16]) -> Self {
        let issued = issue(30);
        let store = Arc::new(CertStore::empty());
        store.set_pem(issued.cert.as_bytes(), issued.key.as_bytes()).unwrap();
        let profile = Arc::new(TlsProfile::default());
        profile.accept(codes).unwrap();
        let tls = server_tls(store, None, Arc::clone(&profile)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = TlsAcceptor::from(tls.current());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let (mut read, mut write) = tokio::io::split(stream);
                        let _ = tokio::io::copy(&mut read, &mut write).await;
                    }
                });
            }
        });
        Self { address, profile, issued }
    }

    fn client(&self, versions: &[&'static SupportedProtocolVersion], codes: &[u16]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issued.der.clone()).unwrap();
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| codes.contains(&u16::from(suite.suite())));
        let builder =
            ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions);
        Arc::new(builder.unwrap().with_root_certificates(roots).with_no_client_auth())
    }

    async fn connect(&self, client: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(client).connect(name, tcp).await?;
        is_echoed(&mut stream).await?;
        Ok(stream)
    }

    /// Version and suite of a handshake; `None` if there is none.
    async fn agreed(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        codes: &[u16],
    ) -> Option<(ProtocolVersion, CipherSuite)> {
        let stream = self.connect(self.client(versions, codes)).await.ok()?;
        let connection = stream.get_ref().1;
        Some((connection.protocol_version()?, connection.negotiated_cipher_suite()?.suite()))
    }
}

async fn is_echoed(stream: &mut TlsStream<TcpStream>) -> std::io::Result<()> {
    let mut answer = [0; 4];
    stream.write_all(b"ping").await?;
    stream.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

#[tokio::test]
async fn who_is_let_in_follows_from_the_profile() {
    let both: &[&'static SupportedProtocolVersion] = &[&TLS12, &TLS13];
    let one = |version: &'static SupportedProtocolVersion| vec![version];
    let (old, new) = (one(&TLS12), one(&TLS13));
    for (profile, versions, codes, expected) in [
        // Intermediate, and Old as far as it goes.
        (ALL, both, ALL, Some((ProtocolVersion::TLSv1_3, None))),
        (ALL, &old[..], ALL, Some((ProtocolVersion::TLSv1_2, None))),
        (ALL, &old[..], &[0xcca9], Some((ProtocolVersion::TLSv1_2, Some(0xcca9)))),
        // The certificate has an ECDSA key.
        (ALL, &old[..], &[0xc02f], None),
        // Modern.
        (MODERN, both, ALL, Some((ProtocolVersion::TLSv1_3, None))),
        (MODERN, &old[..], ALL, None),
        // Custom, with suites of one version or of both.
        (&[0xc02b], both, ALL, Some((ProtocolVersion::TLSv1_2, Some(0xc02b)))),
        (&[0xc02b], &new[..], ALL, None),
        (&[0xc02b], &old[..], &[0xc02c], None),
        (&[0x1302], both, ALL, Some((ProtocolVersion::TLSv1_3, Some(0x1302)))),
        (&[0x1302], &new[..], &[0x1301], None),
        (&[0x1301, 0xc02c], &old[..], ALL, Some((ProtocolVersion::TLSv1_2, Some(0xc02c)))),
        (&[0x1301, 0xc02c], both, ALL, Some((ProtocolVersion::TLSv1_3, Some(0x1301)))),
    ] {
        let server = Server::start(profile).await;
        let agreed = server.agreed(versions, codes).await;
        let said = format!("{profile:x?} with a client of {versions:?} and {codes:x?}: {agreed:?}");
        assert_eq!(agreed.map(|(version, _)| version), expected.map(|(version, _)| version), "{said}");
        if let (Some((_, suite)), Some((_, Some(code)))) = (agreed, expected) {
            assert_eq!(u16::from(suite), code, "{said}");
        }
    }
}

#[tokio::test]
async fn another_profile_holds_from_the_next_handshake_on_and_ends_no_connection() {
    let server = Server::start(ALL).await;
    let old = server.client(&[&TLS12], ALL);
    let mut established = server.connect(Arc::clone(&old)).await.unwrap();
    assert!(server.profile.accept(MODERN).unwrap());
    assert!(!server.profile.accept(MODERN).unwrap(), "the same again is no change");
    // This client has a ticket of its first session, which is worth nothing now.
    assert!(server.connect(Arc::clone(&old)).await.is_err());
    is_echoed(&mut established).await.unwrap();
    assert!(server.profile.accept(ALL).unwrap());
    server.connect(old).await.unwrap();
}

#[tokio::test]
async fn a_profile_of_unknown_suites_is_refused_and_the_one_before_stays() {
    let server = Server::start(MODERN).await;
    for codes in [&[][..], &[0x009c, 0xc009]] {
        let error = server.profile.accept(codes).unwrap_err().to_string();
        assert!(error.starts_with("no cipher suite of the profile is known"), "{error}");
    }
    assert!(server.agreed(&[&TLS13], ALL).await.is_some());
    assert!(server.agreed(&[&TLS12], ALL).await.is_none());
    // Those that are known beside them are taken.
    assert!(server.profile.accept(&[0x009c, 0xc02b]).unwrap());
    assert!(server.agreed(&[&TLS12], ALL).await.is_some());
}

/// The tables of profiles name suites by these numbers.
#[test]
fn the_library_has_exactly_the_suites_that_profiles_can_name() {
    let mut known: Vec<_> =
        aws_lc_rs::ALL_CIPHER_SUITES.iter().map(|suite| u16::from(suite.suite())).collect();
    let mut named = ALL.to_vec();
    known.sort_unstable();
    named.sort_unstable();
    assert_eq!(known, named);
}
