//! What happens to a request before and after the app sees it.
//!
//! The time-out and the catching of panics are what tower-http's layers do, in as many lines and with the counts and answers
//! of this server; its limits of bodies hold for each body alone and know nothing of the connection, whose [`Phase`] decides
//! which one is closed for another.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::poll_fn;
use http::header::CONNECTION;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tower::ServiceExt;

use super::ServeLimits;
use super::connection_state::{ConnectionState, Phase};
use super::metrics::{Refusal, ServeMetrics};
use super::slots::Slots;

/// How much of a body that the app does not read is taken, in bytes and in time, so that its sender sees the answer.
const LEFTOVER: (usize, Duration) = (256 << 10, Duration::from_millis(250));

/// Stands before the app on all connections.
#[derive(Clone)]
pub(super) struct Front {
    app: Router,
    timeout: Duration,
    slots: Arc<Slots>,
    metrics: ServeMetrics,
}

impl Front {
    pub(super) fn new(app: Router, limits: &ServeLimits, slots: Arc<Slots>, metrics: ServeMetrics) -> Self {
        // The app's own limits hold; axum's of 2 MiB would get in their way.
        let app = app.layer(axum::extract::DefaultBodyLimit::disable());
        Self { app, timeout: limits.request_timeout, slots, metrics }
    }

    /// Answers a request of the connection that `state` is about.
    pub(super) async fn answer(
        self,
        request: Request<Incoming>,
        state: ConnectionState,
        peer: SocketAddr,
    ) -> Response {
        let (parts, body) = request.into_parts();
        let upload = Upload::new(body, state.clone());
        let mut request = Request::from_parts(parts, axum::body::Body::new(upload.clone()));
        request.extensions_mut().insert(ConnectInfo(peer));
        let work = AssertUnwindSafe(self.app.clone().oneshot(request)).catch_unwind();
        let mut response = match tokio::time::timeout(self.timeout, work).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(_)) => {
                self.metrics.panicked();
                tracing::error!("a request handler panicked");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n").into_response()
            }
            Err(_) => {
                self.metrics.refuse(Refusal::NoAnswer);
                (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response()
            }
        };
        if response.status().is_success() {
            state.prove();
        }
        if self.slots.crowded() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        upload.discard().await;
        response
    }
}

/// A body on its way to the app.
#[derive(Clone)]
struct Upload {
    body: Arc<Mutex<Incoming>>,
    state: ConnectionState,
}

impl Upload {
    fn new(body: Incoming, state: ConnectionState) -> Self {
        if body.is_end_stream() {
            state.complete();
        }
        Self { body: Arc::new(Mutex::new(body)), state }
    }

    /// Takes what the client is still sending, within narrow bounds: a close with unread bytes resets the connection, and
    /// the client would see that instead of the reason.
    async fn discard(mut self) {
        if self.state.phase() != Phase::Reading {
            return;
        }
        let (most, time) = LEFTOVER;
        let rest = async {
            let mut seen = 0_usize;
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut self).poll_frame(cx)).await {
                seen = seen.saturating_add(frame.data_ref().map_or(0, Bytes::len));
                if seen > most {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(time, rest).await;
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut body = self.body.lock();
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        if frame.is_none() || body.is_end_stream() {
            self.state.complete();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().size_hint()
    }
}
