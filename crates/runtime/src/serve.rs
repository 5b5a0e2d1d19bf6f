//! The accept loop, over TLS or for probes without: limits on everything a client controls, certificates that change, a
//! bounded drain.
//!
//! The API server calls webhooks over HTTP/1.1 alone (`k8s.io/apiserver/pkg/util/webhook/client.go`), many connections at
//! a time, and keeps idle ones for 90 s; so idle connections live longer than that here, while one that has begun a request
//! must go on with it. HTTP/2 is not offered: with it one connection could hold many requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::panics::isolated;
use crate::tls::ServerTls;

mod connection_state;
mod metrics;
mod request;
mod slots;
mod stall_timeout;

use connection_state::ConnectionState;
use metrics::Refusal;
pub use metrics::ServeMetrics;
use request::Front;
use slots::{Slot, Slots};
use stall_timeout::StallTimeout;

/// The first and the longest wait after a failed accept.
const ACCEPT_RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Limits of [`serve`] and [`serve_plain`].
#[derive(Debug, Clone)]
pub struct ServeLimits {
    /// Open connections. For one more another is closed: one that never had a successful answer or that is idle, of the
    /// peer that holds most; if there is none, the new one. From half of it on, answers end their connections. An API
    /// server answers 600 requests at a time by default, each of which may need a connection.
    pub max_connections: usize,
    /// From TCP accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request to the end of its header; then the connection is closed.
    pub header_timeout: Duration,
    /// For a request from the end of its header to its answer (then 503).
    pub request_timeout: Duration,
    /// How long a connection may be silent before its first request and between two. Must exceed the 90 s of the API
    /// server, which does not repeat a request that it sent while the connection was closed.
    pub idle_timeout: Duration,
    /// Bytes of a request's header, and of what is read ahead of a body.
    pub header_limit_bytes: usize,
    /// How long requests may go on after `cancel`.
    pub drain_timeout: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            handshake_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            header_limit_bytes: 16 << 10,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl ServeLimits {
    /// For probes: few and small. No connection stays for more than 5 s without a request or an answer.
    #[must_use]
    pub fn probes() -> Self {
        let time = Duration::from_secs(5);
        Self {
            max_connections: 16,
            header_timeout: time,
            request_timeout: time,
            idle_timeout: time,
            drain_timeout: time,
            ..Self::default()
        }
    }
}

/// State that all connections share.
struct Shared {
    /// `None`: without TLS.
    tls: Option<ServerTls>,
    front: Front,
    limits: ServeLimits,
    metrics: ServeMetrics,
    /// Cancelled: finish what runs and close.
    drain: CancellationToken,
    /// Cancelled: close now.
    kill: CancellationToken,
}

/// Serves `app` over TLS until `cancel`; then stops accepting, lets running requests finish for at most `drain_timeout`,
/// and closes the rest.
///
/// The app reads bodies itself, within limits of its own, and finds the peer as `ConnectInfo<SocketAddr>`. A panic in it
/// becomes a 500 and is counted; one elsewhere ends the connection. One connection has one request at a time, so the bound
/// on connections is the bound on requests.
pub async fn serve(
    listener: TcpListener,
    tls: impl Into<ServerTls>,
    app: Router,
    limits: ServeLimits,
    metrics: ServeMetrics,
    cancel: CancellationToken,
) {
    accept(listener, Some(tls.into()), app, limits, metrics, cancel).await;
}

/// As [`serve`], without TLS.
pub async fn serve_plain(
    listener: TcpListener,
    app: Router,
    limits: ServeLimits,
    metrics: ServeMetrics,
    cancel: CancellationToken,
) {
    accept(listener, None, app, limits, metrics, cancel).await;
}

async fn accept(
    listener: TcpListener,
    tls: Option<ServerTls>,
    app: Router,
    limits: ServeLimits,
    metrics: ServeMetrics,
    cancel: CancellationToken,
) {
    let slots = Slots::new(limits.max_connections, metrics.clone());
    let shared = Arc::new(Shared {
        tls,
        front: Front::new(app, &limits, slots.clone(), metrics.clone()),
        metrics,
        drain: cancel.clone(),
        kill: CancellationToken::new(),
        limits,
    });
    let connections = TaskTracker::new();
    let mut backoff = Backoff::exact(ACCEPT_RETRY.0, ACCEPT_RETRY.1);
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would spin.
                let pause = backoff.failed();
                tracing::warn!(%error, retry_in = ?pause, "cannot accept a connection");
                tokio::time::sleep(pause).await;
                continue;
            }
        };
        backoff.reset();
        // On a socket for both families those of IPv4 have mapped addresses.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if let Some(slot) = slots.enter(peer.ip()) {
            connections.spawn(isolated(connection(shared.clone(), stream, peer, slot)));
        }
        // Requests go first, however many connections wait to be accepted.
        tokio::task::yield_now().await;
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(shared.limits.drain_timeout, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not finish in time");
        shared.kill.cancel();
        connections.wait().await;
    }
}

/// One connection from handshake to close.
async fn connection(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr, slot: Slot) {
    let open = shared.metrics.opened();
    let work = async {
        let _ = stream.set_nodelay(true);
        let state = slot.state.clone();
        match &shared.tls {
            None => http(&shared, stream, peer, state).await,
            Some(tls) => {
                if let Some(tls) = handshake(&shared, tls.current(), stream).await {
                    http(&shared, tls, peer, state).await;
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = slot.close.cancelled() => {}
        () = shared.kill.cancelled() => {}
    }
    drop((open, slot));
}

async fn handshake(
    shared: &Shared,
    tls: Arc<rustls::ServerConfig>,
    stream: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    let acceptor = TlsAcceptor::from(tls);
    let shake = tokio::time::timeout(shared.limits.handshake_timeout, acceptor.accept(stream));
    let outcome = tokio::select! {
        outcome = shake => outcome,
        // Nothing was promised to a client that is not through its handshake.
        () = shared.drain.cancelled() => return None,
    };
    match outcome {
        Ok(Ok(tls)) => return Some(tls),
        Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
        Err(_) => tracing::debug!("handshake took too long"),
    }
    shared.metrics.refuse(Refusal::Handshake);
    None
}

async fn http<S>(shared: &Shared, stream: S, peer: SocketAddr, state: ConnectionState)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &shared.limits;
    let io = TokioIo::new(StallTimeout::new(stream, state.clone(), limits));
    let front = &shared.front;
    let service = service_fn(|request| {
        let (front, state, working) = (front.clone(), state.clone(), state.begin());
        async move {
            let response = front.answer(request, state, peer).await;
            drop(working);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    // hyper's own header timeout also counts the idle time between requests; `StallTimeout` tells the two apart.
    builder
        .header_read_timeout(None)
        .max_header_size(limits.header_limit_bytes)
        .max_buf_size(limits.header_limit_bytes.max(8 << 10));
    let connection = builder.serve_connection(io, service);
    let ended = drain(connection, shared, |connection| connection.graceful_shutdown()).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Polls `connection` to its end; tells it once when draining begins.
async fn drain<C: Future>(
    connection: C,
    shared: &Shared,
    tell: impl FnOnce(std::pin::Pin<&mut C>),
) -> C::Output {
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = shared.drain.cancelled() => {}
    }
    tell(connection.as_mut());
    connection.await
}

#[cfg(test)]
mod tests;
