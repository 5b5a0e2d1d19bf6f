//! The HTTPS accept loop: limits on everything a client controls, certificates that change, a bounded drain.
//!
//! The API server calls webhooks over HTTP/1.1, many connections at a time, and keeps idle ones for 90 s; so idle
//! connections live longer than that here, while one that has begun a request must go on with it (rust.md §1.2,
//! reliability.md §5.3).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tls::{CertStore, TlsError, server_config};

mod metrics;
mod paced;
mod request;

use metrics::Refusal;
pub use metrics::ServeMetrics;
use paced::{Pace, Paced};
use request::Front;

/// Limits of [`serve`].
#[derive(Debug, Clone)]
pub struct ServeLimits {
    /// Open connections; one more is closed at once.
    pub max_connections: usize,
    /// Handshakes that run at a time; others wait within `handshake_timeout`.
    pub max_concurrent_handshakes: usize,
    /// Requests that are worked on at a time; one more gets 429.
    pub max_concurrent_requests: usize,
    /// From TCP accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request (or the handshake) to the end of its header; then the connection is closed.
    pub header_timeout: Duration,
    /// For reading the body (then 408), and again for the answer (then 503).
    pub request_timeout: Duration,
    /// How long a connection may be silent between two requests. Must exceed the 90 s of the API server.
    pub idle_timeout: Duration,
    /// Bytes of one request body; more gets 413.
    pub body_limit_bytes: usize,
    /// Bytes of all request bodies in memory at a time; more gets 429.
    pub buffer_limit_bytes: usize,
    /// Bytes of a request's header.
    pub header_limit_bytes: usize,
    /// HTTP/2 streams of one connection.
    pub max_h2_streams: u32,
    /// How long requests may go on after `cancel`.
    pub drain_timeout: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            max_connections: 512,
            max_concurrent_handshakes: 64,
            max_concurrent_requests: 1024,
            handshake_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            body_limit_bytes: (3 << 20) + (64 << 10),
            buffer_limit_bytes: 48 << 20,
            header_limit_bytes: 16 << 10,
            max_h2_streams: 256,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// State that all connections share.
struct Shared {
    acceptor: TlsAcceptor,
    front: Front,
    limits: ServeLimits,
    handshakes: Semaphore,
    metrics: ServeMetrics,
    /// Cancelled: finish what runs and close.
    drain: CancellationToken,
    /// Cancelled: close now.
    kill: CancellationToken,
}

/// Serves `app` over TLS until `cancel`; then stops accepting, lets running requests finish for at most `drain_timeout`,
/// and closes the rest.
///
/// The app gets each request with its whole body in memory. A panic in it becomes a 500 and is counted, where the build
/// unwinds; with `panic = "abort"` it ends the process. Fails only if the TLS configuration cannot be built.
pub async fn serve(
    listener: TcpListener,
    certs: Arc<CertStore>,
    app: Router,
    limits: ServeLimits,
    metrics: ServeMetrics,
    cancel: CancellationToken,
) -> Result<(), TlsError> {
    let slots = Arc::new(Semaphore::new(limits.max_connections));
    let shared = Arc::new(Shared {
        acceptor: TlsAcceptor::from(Arc::new(server_config(certs)?)),
        front: Front::new(app, &limits, metrics.clone()),
        handshakes: Semaphore::new(limits.max_concurrent_handshakes),
        metrics,
        drain: cancel.clone(),
        kill: CancellationToken::new(),
        limits,
    });
    let connections = TaskTracker::new();
    let mut pause = Duration::ZERO;
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would spin.
                pause = (pause * 2).clamp(Duration::from_millis(5), Duration::from_secs(1));
                tracing::warn!(%error, retry_in = ?pause, "cannot accept a connection");
                tokio::time::sleep(pause).await;
                continue;
            }
        };
        pause = Duration::ZERO;
        match slots.clone().try_acquire_owned() {
            Ok(slot) => drop(connections.spawn(connection(shared.clone(), stream, slot))),
            Err(_) => shared.metrics.refuse(Refusal::Connections),
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(shared.limits.drain_timeout, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not finish in time");
        shared.kill.cancel();
        connections.wait().await;
    }
    Ok(())
}

/// One connection from handshake to close; `slot` is given back at its end.
async fn connection(shared: Arc<Shared>, stream: TcpStream, slot: OwnedSemaphorePermit) {
    let open = shared.metrics.opened();
    let work = async {
        let _ = stream.set_nodelay(true);
        if let Some(tls) = handshake(&shared, stream).await {
            http(&shared, tls).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = shared.kill.cancelled() => {}
    }
    drop((open, slot));
}

async fn handshake(shared: &Shared, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let shake = async {
        let _turn = shared.handshakes.acquire().await;
        shared.acceptor.accept(stream).await
    };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(shared.limits.handshake_timeout, shake) => outcome,
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

async fn http(shared: &Shared, tls: TlsStream<TcpStream>) {
    let h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
    let limits = &shared.limits;
    let pace = Pace::new();
    let io = TokioIo::new(Paced::new(tls, pace.clone(), h2, limits));
    let service = shared.front.for_connection(pace);
    let ended = if h2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.max_h2_streams)
            .max_header_list_size(u32::try_from(limits.header_limit_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(256 << 10)
            .initial_connection_window_size(1 << 20)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10));
        drain(builder.serve_connection(io, service), shared, |connection| connection.graceful_shutdown())
            .await
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        // hyper's own header timeout also counts the idle time between requests; `Paced` tells the two apart.
        builder
            .header_read_timeout(None)
            .max_header_size(limits.header_limit_bytes)
            .max_buf_size(limits.header_limit_bytes.max(64 << 10));
        drain(builder.serve_connection(io, service), shared, |connection| connection.graceful_shutdown())
            .await
    };
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
