//! Connections and requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, DATE, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::body::Body;
use super::rule::{Action, Recorded, Verdict};
use super::stream::{Ending, Hold, WatchBody};
use super::{Shared, lock};

pub(super) fn tls(cert: &str, key: &str) -> anyhow::Result<rustls::ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).context("the proxy's certificate")?];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("the proxy's key")?;
    let builder =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

pub(super) async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let mut closed = shared.closed.subscribe();
            tokio::select! {
                _ = connection(stream, acceptor, shared) => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        });
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| handle(request, Arc::clone(&shared)));
    // An error is what a rule asked for, or the client going away.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// An error closes the connection without an answer.
async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> anyhow::Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.context("reading the request")?.to_bytes();
    if let Some(required) = &shared.required
        && parts.headers.remove(AUTHORIZATION).is_none_or(|shown| shown != required)
    {
        return Ok(status(StatusCode::UNAUTHORIZED, None));
    }
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    let recorded = Recorded {
        method: parts.method.clone(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).ok(),
    };
    lock(&shared.requests).push(recorded.clone());
    let verdict = lock(&shared.rules).iter().find_map(|rule| rule.consider(&recorded));
    let pass = parts.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    parts.uri = pass;
    parts.version = http::Version::default();
    let upstream = Request::from_parts(parts, kube::client::Body::from(body));
    match verdict {
        Some(verdict) => misbehave(upstream, &recorded, &shared, verdict).await,
        None => forward(upstream, &recorded, &shared, None).await,
    }
}

async fn misbehave(
    request: Request<kube::client::Body>,
    recorded: &Recorded,
    shared: &Shared,
    verdict: Verdict,
) -> anyhow::Result<Response<Body>> {
    if matches!(verdict.action, Action::ApplyThenLoseResponse) {
        let answer = shared.upstream.send(request).await.context("forwarding")?;
        let _ = answer.into_body().collect().await;
        verdict.call(recorded).await;
        return Err(anyhow!("the answer is lost by rule"));
    }
    verdict.call(recorded).await;
    match verdict.action {
        Action::Answer { status: code, retry_after } => return Ok(status(code, retry_after)),
        Action::AnswerWith(object) => return Ok(json(StatusCode::OK, &object)),
        Action::DropBefore => return Err(anyhow!("the request is dropped by rule")),
        Action::Delay(time) => tokio::time::sleep(time).await,
        Action::HoldUntil(release) => release.notified().await,
        Action::CutWatch { after_events } => {
            return forward(request, recorded, shared, Some((after_events, Ending::Cut))).await;
        }
        Action::WatchError410 { after_events } => {
            return forward(request, recorded, shared, Some((after_events, Ending::Expired))).await;
        }
        Action::Pass | Action::ApplyThenLoseResponse => {}
    }
    forward(request, recorded, shared, None).await
}

async fn forward(
    request: Request<kube::client::Body>,
    recorded: &Recorded,
    shared: &Shared,
    ending: Option<(usize, Ending)>,
) -> anyhow::Result<Response<Body>> {
    let answer = shared.upstream.send(request).await.context("forwarding")?;
    let (mut parts, body) = answer.into_parts();
    for header in [CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    let ahead = shared.ahead.load(Ordering::SeqCst);
    if ahead != 0 {
        parts.headers.insert(DATE, date(ahead)?);
    }
    parts.version = http::Version::default();
    if recorded.is_watch() && parts.status == StatusCode::OK {
        let hold = Hold { path: recorded.path.clone(), held: shared.held.subscribe() };
        let watch = WatchBody::new(body, shared.watches.subscribe(), hold, ending);
        return Ok(Response::from_parts(parts, watch.into_body()));
    }
    let body = body.map_err(|error| anyhow!("reading the answer: {error}")).boxed_unsync();
    Ok(Response::from_parts(parts, body))
}

/// The present, so many seconds ahead, as headers have it.
fn date(ahead: i64) -> anyhow::Result<HeaderValue> {
    let then = Timestamp::now().checked_add(SignedDuration::from_secs(ahead))?;
    let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&then)?;
    HeaderValue::from_str(&text).context("the date of an answer")
}

/// A `metav1.Status` as the API server would answer it.
fn status(code: StatusCode, retry_after: Option<u32>) -> Response<Body> {
    let reason = match code.as_u16() {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let details = retry_after.map(|seconds| serde_json::json!({"retryAfterSeconds": seconds}));
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "answered by the fault proxy", "reason": reason, "details": details, "code": code.as_u16(),
    });
    let mut response = json(code, &body);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn json(code: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
