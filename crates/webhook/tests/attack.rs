//! Senders that stall, over real TLS: others are answered all the while.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{SERVE, TENANT, pod_create, service};
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use sluice_runtime::serve::{ServeLimits, ServeMetrics, serve};
use sluice_runtime::tls::{CertStore, server_config};
use sluice_webhook::{SecretPath, behind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// Addresses of this machine: as peers they are as different as any.
const ATTACKER: [u8; 4] = [127, 0, 0, 66];
const API_SERVER: [u8; 4] = [127, 0, 0, 1];

const CONNECTIONS: usize = 48;
const UPLOADS: usize = 24;
const IDLE: usize = 200;
const SECRET: &str = "00112233445566778899aabbccddeeff";

type Tls = TlsStream<TcpStream>;

/// A webhook as the program serves it.
struct Server {
    address: SocketAddr,
    trusted: CertificateDer<'static>,
    metrics: ServeMetrics,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    async fn start(secret: Option<&str>) -> Self {
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certs = Arc::new(CertStore::empty());
        certs.set_pem(signed.cert.pem().as_bytes(), signed.signing_key.serialize_pem().as_bytes()).unwrap();
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = SocketAddr::from((API_SERVER, listener.local_addr().unwrap().port()));
        let path = Arc::new(SecretPath::default());
        path.set(secret);
        let (metrics, stop) = (ServeMetrics::default(), CancellationToken::new());
        let limits = ServeLimits { max_connections: CONNECTIONS, ..ServeLimits::default() };
        let tls = server_config(certs, None).unwrap();
        tokio::spawn(serve(listener, tls, behind(path, service()), limits, metrics.clone(), stop.clone()));
        Self { address, trusted: signed.cert.der().clone(), metrics, stop }
    }

    async fn connect(&self, from: [u8; 4]) -> std::io::Result<Tls> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        let tcp = socket.connect(self.address).await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(ServerName::try_from("localhost").unwrap(), tcp).await
    }

    /// A review of `size` bytes over a connection of its own; the first line of the answer.
    async fn asks(&self, from: [u8; 4], path: &str, size: usize) -> String {
        let asked = async { ask(&mut self.connect(from).await?, path, size).await };
        asked.await.unwrap_or_else(|error| format!("no answer: {error}"))
    }

    /// The same, again and again until there is an answer: behind the address of an attacker a new connection may be lost.
    async fn keeps_asking(&self, from: [u8; 4], path: &str) -> Tls {
        let asking = async {
            loop {
                let Ok(mut stream) = self.connect(from).await else { continue };
                if ask(&mut stream, path, 0).await.is_ok_and(|line| line == OK) {
                    return stream;
                }
            }
        };
        tokio::time::timeout(SOON, asking).await.expect("an answer")
    }
}

/// A review of `size` bytes; the first line of the answer.
async fn ask(stream: &mut Tls, path: &str, size: usize) -> std::io::Result<String> {
    let mut review = serde_json::to_vec(&pod_create(TENANT, &json!({"spec": {}}))).unwrap();
    review.resize(review.len().max(size), b' ');
    let asked = async {
        stream.write_all(head(path, review.len()).as_bytes()).await?;
        stream.write_all(&review).await?;
        // What the socket did not take stays in the TLS buffer, and reading does not send it.
        stream.flush().await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await?);
        }
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        stream.read_exact(&mut vec![0; length.unwrap_or(0)]).await?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    };
    tokio::time::timeout(SOON, asked).await.expect("an answer or a close")
}

const OK: &str = "http/1.1 200 ok";
const SOON: Duration = Duration::from_secs(20);

fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Sends all but the last byte of a body again and again.
async fn upload(server: Arc<Server>, path: String) {
    loop {
        let Ok(mut stream) = server.connect(ATTACKER).await else { continue };
        let _ = stream.write_all(head(&path, 8 << 20).as_bytes()).await;
        let piece = vec![b' '; 64 << 10];
        for _ in 0..127 {
            if stream.write_all(&piece).await.is_err() {
                break;
            }
        }
        let _ = stream.read_to_end(&mut Vec::new()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Keeps a connection as long as the server does, again and again.
async fn idle(server: Arc<Server>) {
    loop {
        if let Ok(mut stream) = server.connect(ATTACKER).await {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// An attack from one address that is in full swing.
async fn attacked(secret: Option<&str>, path: &str) -> (Arc<Server>, JoinSet<()>) {
    let server = Arc::new(Server::start(secret).await);
    let mut attack = JoinSet::new();
    for _ in 0..UPLOADS {
        attack.spawn(upload(Arc::clone(&server), path.to_owned()));
    }
    for _ in 0..IDLE {
        attack.spawn(idle(Arc::clone(&server)));
    }
    let full = async {
        while server.metrics.refused() < 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, full).await.expect("more connections than slots");
    (server, attack)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_peer_is_answered_whatever_its_size_and_the_same_one_with_small_reviews() {
    let (server, _attack) = attacked(None, SERVE).await;
    for round in 0..20 {
        assert_eq!(server.asks(API_SERVER, SERVE, 0).await, OK, "round {round}");
        assert_eq!(server.asks(API_SERVER, SERVE, 2 << 20).await, OK, "round {round}: large");
        server.keeps_asking(ATTACKER, SERVE).await;
    }
    assert!(server.metrics.connections() <= i64::try_from(CONNECTIONS + 16).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_one_address_who_knows_the_secret_path_keeps_its_connections_and_its_size() {
    // All come from the address of a proxy; the attackers do not know the path.
    let (server, _attack) = attacked(Some(SECRET), SERVE).await;
    let path = format!("/{SECRET}{SERVE}");
    let mut known = server.keeps_asking(ATTACKER, &path).await;
    for round in 0..20 {
        assert_eq!(ask(&mut known, &path, 0).await.unwrap(), OK, "round {round}");
        assert_eq!(ask(&mut known, &path, 4 << 20).await.unwrap(), OK, "round {round}: large");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_do_not_know_the_secret_path_keep_no_place_from_one_that_does() {
    let server = Server::start(Some(SECRET)).await;
    let path = format!("/{SECRET}{SERVE}");
    let mut all = vec![server.keeps_asking(API_SERVER, &path).await];
    for last in 1..CONNECTIONS {
        let mut stream = server.connect([127, 0, 1, u8::try_from(last).unwrap()]).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        stream.read_u8().await.expect("an answer");
        all.push(stream);
    }
    // Each other peer holds one connection, less than the one that asks for more.
    for more in 1..8 {
        let mut stream =
            server.connect(API_SERVER).await.unwrap_or_else(|error| panic!("{more} more: {error}"));
        assert_eq!(ask(&mut stream, &path, 0).await.unwrap(), OK, "{more} more");
        all.push(stream);
    }
    assert_eq!(ask(&mut all[0], &path, 0).await.unwrap(), OK, "what was proven stays");
}
