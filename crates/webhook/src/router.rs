//! The HTTP contract of application-aware-quota's server (`pkg/aaq-server/aaq-handler.go`): bodies in, verdicts
//! out. Nothing about quotas is decided here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use sluice_api::names;

use crate::aaq_validate::aaq_validate;
use crate::body::{BodyError, BodyReader, HeldBody, Limits};
use crate::metrics::WebhookMetrics;
use crate::mtq_lock::mtq_lock;
use crate::pod_gate::pod_gate;
use crate::pod_guard::pod_guard;
use crate::pod_identity::pod_identity;
use crate::quota_validate::quota_validate;
use crate::review::{Operation, Review};
use crate::settings::{AaqPresence, Settings};
use crate::verdict::Verdict;

/// The endpoint label of requests that never became a review.
const NO_REVIEW: &str = "none";

/// What the handlers share.
#[derive(Debug)]
pub struct App {
    settings: ArcSwap<Settings>,
    metrics: WebhookMetrics,
    bodies: BodyReader,
}

impl App {
    /// An application that starts with `settings`.
    pub fn new(settings: Settings, limits: Limits, metrics: WebhookMetrics) -> Arc<Self> {
        Arc::new(Self { settings: ArcSwap::from_pointee(settings), metrics, bodies: BodyReader::new(limits) })
    }

    /// Tells all later verdicts whether an `AAQ` exists.
    pub fn set_aaq(&self, aaq: AaqPresence) {
        self.settings.rcu(|settings| Settings { aaq, ..Settings::clone(settings) });
    }

    /// Tells all later verdicts the username of KubeVirt's controller; `None` if it is not known.
    pub fn set_kubevirt_controller(&self, username: Option<String>) {
        self.settings
            .rcu(|settings| Settings { kubevirt_controller: username.clone(), ..Settings::clone(settings) });
    }
}

/// The HTTP service: the paths of the webhook configurations.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(names::PATH_SERVE, post(serve))
        .route(names::PATH_POD_IDENTITY, post(identify))
        .route(names::PATH_VALIDATE_PODS, post(lock))
        .with_state(app)
}

async fn serve(State(app): State<Arc<App>>, request: Request) -> Response {
    handle(&app, request, choose_by_kind).await
}

async fn identify(State(app): State<Arc<App>>, request: Request) -> Response {
    handle(&app, request, choose_identity).await
}

async fn lock(State(app): State<Arc<App>>, request: Request) -> Response {
    handle(&app, request, |_| ("mtq_lock", mtq_lock)).await
}

/// An endpoint: its name in metrics and logs, and its decision.
type Endpoint = (&'static str, fn(&Review<'_>, &Settings) -> Verdict);

/// Upstream's dispatch: on `request.kind.kind` alone, and for pods on the operation.
fn choose_by_kind(review: &Review<'_>) -> Endpoint {
    match (review.kind.as_str(), &review.operation) {
        ("Pod" | names::GATE_PROBE, Operation::Create) => ("pod_gate", pod_gate),
        ("Pod", _) => ("pod_guard", pod_guard),
        ("ApplicationAwareResourceQuota", _) => ("quota_validate", quota_validate),
        ("AAQ", _) => ("aaq_validate", aaq_validate),
        _ => ("unknown", unknown_kind),
    }
}

fn choose_identity(review: &Review<'_>) -> Endpoint {
    match review.kind.as_str() {
        "Pod" => ("pod_identity", pod_identity),
        _ => ("unknown", unknown_kind),
    }
}

/// A kind that no webhook configuration of ours sends here.
fn unknown_kind(review: &Review<'_>, _settings: &Settings) -> Verdict {
    Verdict::malformed(format!(
        "could not generate admission response: AAQ webhook doesn't recognize request: kind \"{}\", operation {:?}",
        review.kind, review.operation
    ))
}

/// The answer to one request, and what is counted about it.
pub(crate) struct Answer {
    endpoint: &'static str,
    allowed: bool,
    code: u16,
    response: Response,
}

/// A request that never became a review: an HTTP error in plain text.
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl ToString) -> Self {
        Self { status, message: message.to_string() }
    }
}

impl From<Refusal> for Answer {
    fn from(Refusal { status, message }: Refusal) -> Self {
        let code = status.as_u16();
        tracing::warn!(code, %message, "admission request refused");
        let response = (status, format!("{message}\n")).into_response();
        Self { endpoint: NO_REVIEW, allowed: false, code, response }
    }
}

async fn handle(app: &App, request: Request, choose: fn(&Review<'_>) -> Endpoint) -> Response {
    counted(app, read_and_decide(app, request, choose)).await
}

/// Counts the answer and how long it took.
pub(crate) async fn counted(app: &App, answering: impl Future<Output = Result<Answer, Refusal>>) -> Response {
    let started = Instant::now();
    let answer = answering.await.unwrap_or_else(Answer::from);
    app.metrics.observe(answer.endpoint, answer.allowed, answer.code, started.elapsed());
    answer.response
}

async fn read_and_decide(
    app: &App,
    request: Request,
    choose: fn(&Review<'_>) -> Endpoint,
) -> Result<Answer, Refusal> {
    let body = read(app, request).await?;
    decide(&body.bytes, &app.settings.load(), choose)
}

/// The body of a request that may be a review.
pub(crate) async fn read(app: &App, request: Request) -> Result<HeldBody<'_>, Refusal> {
    require_json(request.headers())?;
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip().to_canonical());
    let body = app.bodies.read(peer, request.into_body()).await;
    body.map_err(|error| Refusal::new(body_status(&error), error))
}

/// `application/json`, with or without parameters.
fn require_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let value = value.unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("Content-Type: \"{value}\" should be \"application/json\"");
    Err(Refusal::new(StatusCode::BAD_REQUEST, message))
}

fn body_status(error: &BodyError) -> StatusCode {
    match error {
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        BodyError::Late => StatusCode::REQUEST_TIMEOUT,
        BodyError::Broken(_) => StatusCode::BAD_REQUEST,
    }
}

fn decide(body: &[u8], settings: &Settings, choose: fn(&Review<'_>) -> Endpoint) -> Result<Answer, Refusal> {
    let review = Review::decode(body).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?;
    let (endpoint, verdict_of) = choose(&review);
    let verdict = verdict_of(&review, settings);
    log(endpoint, &review, &verdict);
    answer(endpoint, &review.uid, &verdict)
}

/// The answer that carries a verdict on the request `uid`.
pub(crate) fn answer(endpoint: &'static str, uid: &str, verdict: &Verdict) -> Result<Answer, Refusal> {
    let bytes = verdict.encode(uid).map_err(|error| {
        let message = format!("could not generate admission response: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    Ok(answer_with(endpoint, verdict.allowed, verdict.code, bytes.into()))
}

/// An answer that is written already.
pub(crate) fn answer_with(endpoint: &'static str, allowed: bool, code: u16, body: Bytes) -> Answer {
    let response = ([(CONTENT_TYPE, "application/json")], body).into_response();
    Answer { endpoint, allowed, code, response }
}

fn log(endpoint: &'static str, review: &Review<'_>, verdict: &Verdict) {
    let Review { uid, namespace, name, username, dry_run, .. } = review;
    let Verdict { allowed, code, message, .. } = verdict;
    if *allowed {
        tracing::debug!(
            endpoint,
            uid,
            namespace,
            name,
            username,
            dry_run,
            allowed,
            code,
            "admission answered"
        );
    } else {
        tracing::info!(
            endpoint, uid, namespace, name, username, dry_run, allowed, code, %message, "admission answered"
        );
    }
}
