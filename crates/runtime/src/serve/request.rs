//! What happens to a request before and after the app sees it.

use std::convert::Infallible;
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
use futures::future::{BoxFuture, poll_fn};
use http::{Request, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::Service;
use parking_lot::Mutex;
use tower::ServiceExt;

use super::ServeLimits;
use super::metrics::{Refusal, ServeMetrics};
use super::paced::{Pace, Phase};

/// How much of a body that the app does not read is taken, in bytes and in time, so that its sender sees the answer.
const LEFTOVER: (usize, Duration) = (256 << 10, Duration::from_millis(250));

/// Stands before the app on all connections.
#[derive(Clone)]
pub(super) struct Front {
    app: Router,
    timeout: Duration,
    metrics: ServeMetrics,
}

impl Front {
    pub(super) fn new(app: Router, limits: &ServeLimits, metrics: ServeMetrics) -> Self {
        // The app's own limits hold; axum's of 2 MiB would get in their way.
        let app = app.layer(axum::extract::DefaultBodyLimit::disable());
        Self { app, timeout: limits.request_timeout, metrics }
    }

    pub(super) fn for_connection(&self, pace: Pace, peer: SocketAddr) -> FrontService {
        FrontService { front: self.clone(), pace, peer }
    }

    async fn answer(self, request: Request<Incoming>, pace: Pace, peer: SocketAddr) -> Response {
        let (parts, body) = request.into_parts();
        let upload = Upload::new(body, pace.clone());
        let mut request = Request::from_parts(parts, axum::body::Body::new(upload.clone()));
        request.extensions_mut().insert(ConnectInfo(peer));
        let work = AssertUnwindSafe(self.app.clone().oneshot(request)).catch_unwind();
        let response = match tokio::time::timeout(self.timeout, work).await {
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
            pace.prove();
        }
        upload.discard().await;
        response
    }
}

/// A body on its way to the app.
#[derive(Clone)]
struct Upload {
    body: Arc<Mutex<Incoming>>,
    pace: Pace,
}

impl Upload {
    fn new(body: Incoming, pace: Pace) -> Self {
        if body.is_end_stream() {
            pace.complete();
        }
        Self { body: Arc::new(Mutex::new(body)), pace }
    }

    /// Takes what the client is still sending, within narrow bounds: a close with unread bytes resets the connection, and
    /// the client would see that instead of the reason.
    async fn discard(mut self) {
        if self.pace.phase() != Phase::Reading {
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
            self.pace.complete();
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

/// [`Front`] for one connection.
pub(super) struct FrontService {
    front: Front,
    pace: Pace,
    peer: SocketAddr,
}

impl Service<Request<Incoming>> for FrontService {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let working = self.pace.begin();
        let (front, pace, peer) = (self.front.clone(), self.pace.clone(), self.peer);
        Box::pin(async move {
            let response = front.answer(request, pace, peer).await;
            drop(working);
            Ok(response)
        })
    }
}
