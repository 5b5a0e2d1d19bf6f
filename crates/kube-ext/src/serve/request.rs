//! What happens to a request before and after the app sees it.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;

use super::ServeLimits;
use super::metrics::{Refusal, ServeMetrics};
use super::paced::Pace;

/// Stands before the app on all connections.
#[derive(Clone)]
pub(super) struct Front {
    app: Router,
    requests: Arc<Semaphore>,
    buffer: Arc<Semaphore>,
    body_limit: usize,
    timeout: Duration,
    metrics: ServeMetrics,
}

impl Front {
    pub(super) fn new(app: Router, limits: &ServeLimits, metrics: ServeMetrics) -> Self {
        Self {
            // The limit is ours; axum's own of 2 MiB would get in its way.
            app: app.layer(axum::extract::DefaultBodyLimit::disable()),
            requests: Arc::new(Semaphore::new(limits.max_concurrent_requests)),
            buffer: Arc::new(Semaphore::new(limits.buffer_limit_bytes.min(Semaphore::MAX_PERMITS))),
            body_limit: limits.body_limit_bytes,
            timeout: limits.request_timeout,
            metrics,
        }
    }

    pub(super) fn for_connection(&self, pace: Pace) -> FrontService {
        FrontService { front: self.clone(), pace }
    }

    async fn answer(self, request: Request<Incoming>) -> Response {
        let Ok(_turn) = self.requests.clone().try_acquire_owned() else {
            return self.refuse(Refusal::Requests);
        };
        let (parts, mut body) = request.into_parts();
        let read = tokio::time::timeout(self.timeout, self.read(&parts.headers, &mut body)).await;
        let (body, _reserved) = match read {
            Ok(Ok(body)) => body,
            Ok(Err(refusal)) => {
                discard(body, self.body_limit).await;
                return self.refuse(refusal);
            }
            Err(_) => return self.refuse(Refusal::BodyTooSlow),
        };
        let request = Request::from_parts(parts, Body::from(body));
        let work = AssertUnwindSafe(self.app.clone().oneshot(request)).catch_unwind();
        match tokio::time::timeout(self.timeout, work).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(_)) => {
                self.metrics.panicked();
                tracing::error!("a request handler panicked");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n").into_response()
            }
            Err(_) => self.refuse(Refusal::NoAnswer),
        }
    }

    /// Reads the whole body within the limits. The permit stands for its bytes.
    async fn read(
        &self,
        headers: &HeaderMap,
        body: &mut Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refusal> {
        let declared = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse::<u64>().ok());
        if declared
            .is_some_and(|length| usize::try_from(length).map_or(true, |length| length > self.body_limit))
        {
            return Err(Refusal::BodyTooLarge);
        }
        // What is declared is believed only as it arrives: a promise of 3 MiB must not reserve them.
        let mut all = BytesMut::new();
        let mut reserved: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Refusal::BodyBroken)?.into_data() else { continue };
            if all.len().saturating_add(data.len()) > self.body_limit {
                return Err(Refusal::BodyTooLarge);
            }
            let bytes = u32::try_from(data.len()).map_err(|_| Refusal::BodyTooLarge)?;
            let more = self.buffer.clone().try_acquire_many_owned(bytes).map_err(|_| Refusal::Buffer)?;
            match &mut reserved {
                Some(reserved) => reserved.merge(more),
                None => reserved = Some(more),
            }
            all.extend_from_slice(&data);
        }
        Ok((all.freeze(), reserved))
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        self.metrics.refuse(refusal);
        let (status, text) = match refusal {
            Refusal::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n"),
            Refusal::BodyTooSlow => (StatusCode::REQUEST_TIMEOUT, "request body did not arrive in time\n"),
            Refusal::BodyBroken => (StatusCode::BAD_REQUEST, "request body is broken\n"),
            Refusal::NoAnswer => (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n"),
            Refusal::Requests | Refusal::Buffer | Refusal::Connections | Refusal::Handshake => {
                let retry = [(header::RETRY_AFTER, "1")];
                return (StatusCode::TOO_MANY_REQUESTS, retry, "too many requests at a time\n")
                    .into_response();
            }
        };
        (status, text).into_response()
    }
}

/// Takes what the client is still sending, within narrow bounds: a close with unread bytes resets the connection, and
/// the client would see that instead of the reason.
async fn discard(mut body: Incoming, limit: usize) {
    let rest = async {
        let mut seen = 0_usize;
        while let Some(Ok(frame)) = body.frame().await {
            seen = seen.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            if seen > limit {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
}

/// [`Front`] for one connection.
pub(super) struct FrontService {
    front: Front,
    pace: Pace,
}

impl Service<Request<Incoming>> for FrontService {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let working = self.pace.begin();
        let front = self.front.clone();
        Box::pin(async move {
            let response = front.answer(request).await;
            drop(working);
            Ok(response)
        })
    }
}
