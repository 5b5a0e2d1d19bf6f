//! A client with a fixed rate over kept connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::reviews::Body;

/// The name in the server's certificate.
pub(super) const SERVER_NAME: &str = "webhook.sluice.test";

/// No answer may take longer.
const ANSWER: Duration = Duration::from_secs(10);

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// Where to and whom to trust.
#[derive(Clone)]
pub(super) struct Target {
    address: SocketAddr,
    tls: TlsConnector,
    /// Where it connects from.
    peer: Ipv4Addr,
}

impl Target {
    pub(super) fn new(address: &str, trusted: &CertificateDer<'static>) -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.clone())?;
        let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (tls, peer) = (TlsConnector::from(Arc::new(config)), Ipv4Addr::LOCALHOST);
        Ok(Self { address: address.parse()?, tls, peer })
    }

    /// The same, from another address of this machine.
    pub(super) fn with_peer(self, peer: Ipv4Addr) -> Self {
        Self { peer, ..self }
    }

    /// A connection that has said nothing yet.
    pub(super) async fn stream(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.peer, 0).into())?;
        let tcp = socket.connect(self.address).await.context("connecting to the webhook")?;
        tcp.set_nodelay(true)?;
        self.tls.connect(ServerName::try_from(SERVER_NAME)?, tcp).await.context("TLS with the webhook")
    }

    /// A connection over which `body` was answered. Behind the address of an attacker it may take several attempts, as many
    /// calls of an API server would.
    async fn connect(&self, body: &Body) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let attempt = || async {
            let tls = self.stream().await?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
            // Ends when the sender is dropped; its errors show up at the sender.
            tokio::spawn(connection);
            ask(&mut sender, body).await?;
            anyhow::Ok(sender)
        };
        let until = Instant::now() + ANSWER;
        loop {
            match timeout(ANSWER, attempt()).await.context("no connection in time").flatten() {
                Err(_) if Instant::now() < until => sleep(RETRY).await,
                outcome => return outcome,
            }
        }
    }
}

/// What a client saw.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) latencies_ms: Vec<f64>,
    /// The longest time from the first attempt to connect to the first answer.
    pub(super) connected_ms: f64,
    took: Duration,
}

impl Measured {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn answered(&self) -> f64 {
        self.latencies_ms.len() as f64
    }

    /// Answers per second.
    pub(super) fn rate(&self) -> f64 {
        self.answered() / self.took.as_secs_f64()
    }
}

/// Sends `rate` requests a second for `time`, in turns over the connections; all have to be admitted.
pub(super) async fn run(
    target: &Target,
    bodies: &[Body],
    rate: u32,
    connections: u32,
    time: Duration,
) -> anyhow::Result<Measured> {
    let total = u64::from(rate) * time.as_secs();
    let spacing = Duration::from_secs(1) / rate;
    let mut senders = Vec::new();
    let mut connected_ms = 0.0_f64;
    for body in bodies.iter().cycle().take(connections as usize) {
        let begin = Instant::now();
        senders.push(target.connect(body).await?);
        connected_ms = connected_ms.max(begin.elapsed().as_secs_f64() * 1e3);
    }
    let begin = Instant::now() + Duration::from_millis(20);
    let lanes = senders.into_iter().enumerate().map(|(lane, sender)| {
        let turns = (lane as u64..total).step_by(connections as usize);
        let due = turns.map(move |turn| (turn, begin + spacing * u32::try_from(turn).unwrap_or(u32::MAX)));
        tokio::spawn(send(sender, bodies.to_vec(), due.collect()))
    });
    let mut latencies_ms = Vec::new();
    for lane in lanes.collect::<Vec<_>>() {
        latencies_ms.extend(lane.await??);
    }
    Ok(Measured { latencies_ms, connected_ms, took: begin.elapsed() })
}

/// One connection: each request at its time, or as soon as the one before is answered.
async fn send(
    mut sender: SendRequest<Full<Bytes>>,
    bodies: Vec<Body>,
    due: Vec<(u64, Instant)>,
) -> anyhow::Result<Vec<f64>> {
    let mut latencies = Vec::with_capacity(due.len());
    for (turn, due) in due {
        let late = Instant::now() > due;
        sleep_until(due).await;
        let Some(body) = bodies.get(usize::try_from(turn).unwrap_or(0) % bodies.len().max(1)) else { break };
        let begin = if late { due } else { Instant::now() };
        ask(&mut sender, body).await?;
        latencies.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(latencies)
}

async fn ask(sender: &mut SendRequest<Full<Bytes>>, body: &Body) -> anyhow::Result<()> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(body.path)
        .header("host", SERVER_NAME)
        .header("content-type", "application/json")
        .body(Full::new(body.bytes.clone()))?;
    let answer = timeout(ANSWER, async {
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        anyhow::Ok((status, answer.into_body().collect().await?.to_bytes()))
    });
    let (status, text) = answer.await.context("no answer in time")?.context("asking the webhook")?;
    let admitted = text.windows(ADMITTED.len()).any(|part| part == ADMITTED);
    ensure!(
        status == 200 && admitted,
        "{} answered {status}: {}",
        body.endpoint,
        String::from_utf8_lossy(&text)
    );
    Ok(())
}

const ADMITTED: &[u8] = b"\"allowed\":true";
