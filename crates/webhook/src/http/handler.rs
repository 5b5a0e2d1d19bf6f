//! One request: read, decoded, decided, logged, answered, counted. The same for every endpoint.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, Request};
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use sluice_api::Endpoint;

use super::App;
use super::body::HeldBody;
use super::request_error::RequestError;
use crate::endpoints::{Decision, takes};
use crate::review::{Review, Verdict};

/// The endpoint label of requests that never became a review.
const NO_REVIEW: &str = "none";
/// The endpoint label of reviews that no webhook configuration of ours sends.
const UNKNOWN: &str = "unknown";

/// Answers the requests of one path.
pub(crate) struct Handler {
    app: Arc<App>,
    /// Those of the path; the first that takes a review decides on it.
    endpoints: Vec<(Endpoint, Decision)>,
}

/// A verdict as it is counted and sent.
struct HttpAnswer {
    endpoint: &'static str,
    allowed: bool,
    code: u16,
    response: Response,
}

impl From<RequestError> for HttpAnswer {
    fn from(error: RequestError) -> Self {
        let status = error.status();
        let code = status.as_u16();
        tracing::warn!(code, message = %error, "admission request refused");
        let response = (status, format!("{error}\n")).into_response();
        Self { endpoint: NO_REVIEW, allowed: false, code, response }
    }
}

impl Handler {
    pub(crate) fn new(app: Arc<App>, endpoints: Vec<(Endpoint, Decision)>) -> Self {
        Self { app, endpoints }
    }

    /// Counts the answer and how long it took.
    pub(crate) async fn handle(&self, request: Request) -> Response {
        let started = Instant::now();
        let answer = self.answer(request).await.unwrap_or_else(HttpAnswer::from);
        self.app.metrics.observe(answer.endpoint, answer.allowed, answer.code, started.elapsed());
        answer.response
    }

    async fn answer(&self, request: Request) -> Result<HttpAnswer, RequestError> {
        let body = self.read(request).await?;
        let review = Review::decode(&body.bytes)?;
        let (endpoint, is_asked, verdict) = self.decide(&review, &body);
        let Review { uid, namespace, name, user_info, dry_run, .. } = review;
        let username = user_info.username;
        // A decision may take a while; unless it needs the body, that is not kept for it.
        drop(body);
        let verdict = verdict.await;
        let Verdict { allowed, code, message, .. } = &verdict;
        // Who is asked tells of what is refused, if it is to be told: a client may ask for a resize again and again.
        if *allowed || is_asked {
            tracing::debug!(
                endpoint,
                uid,
                namespace,
                name,
                username,
                dry_run,
                allowed,
                code,
                %message,
                "admission answered",
            );
        } else {
            tracing::info!(endpoint, uid, namespace, name, username, dry_run, allowed, code, %message, "admission answered");
        }
        let response = ([(CONTENT_TYPE, "application/json")], verdict.encode(&uid)?).into_response();
        Ok(HttpAnswer { endpoint, allowed: *allowed, code: *code, response })
    }

    /// The body of a request that may be a review.
    async fn read(&self, request: Request) -> Result<HeldBody, RequestError> {
        require_json(request.headers())?;
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer =
            peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip().to_canonical());
        Ok(self.app.bodies.read(peer, request.into_body()).await?)
    }

    /// The label of the endpoint that takes the review, whether it asks others, and its verdict.
    fn decide(
        &self,
        review: &Review<'_>,
        body: &HeldBody,
    ) -> (&'static str, bool, BoxFuture<'static, Verdict>) {
        match self.endpoints.iter().find(|(endpoint, _)| takes(*endpoint, review)) {
            Some((endpoint, Decision::Pure(decide))) => {
                (endpoint.name(), false, ready(decide(review, &self.app.settings.load())).boxed())
            }
            Some((endpoint, Decision::Async(decide))) => {
                (endpoint.name(), true, Arc::clone(decide).decide(review, &self.app.settings.load(), body))
            }
            None => (UNKNOWN, false, ready(unknown_kind(review)).boxed()),
        }
    }
}

/// `application/json`, with or without parameters.
fn require_json(headers: &HeaderMap) -> Result<(), RequestError> {
    let value = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let value = value.unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(RequestError::ContentType(value.into_owned()))
}

fn unknown_kind(review: &Review<'_>) -> Verdict {
    Verdict::malformed(format!(
        "could not generate admission response: AAQ webhook doesn't recognize request: kind \"{}\", operation {:?}",
        review.kind, review.operation
    ))
}
