//! One call: from the bytes of a request to those of its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use prost::Message;

use crate::protocol::{
    CONTENT_TYPE, HEALTH_CHECK, HealthCheckRequest, HealthCheckResponse, MESSAGE, POD_USAGE, PodUsageRequest,
    PodUsageResponse, RESOURCE_EXHAUSTED, ResourceList, STATUS, frame, message,
};
use crate::{Answer, Error, Evaluator, OtherPods, Pod, protocol};

/// Largest request. It bounds the memory, not what can be asked: a controller sends far less.
const MOST_BYTES: usize = 64 << 20;

type Body = BoxBody<Bytes, std::convert::Infallible>;

/// The outcome of a call that gives no message: a number of gRPC, and its text.
struct Failed(&'static str, String);

pub(super) async fn answer(request: Request<Incoming>, evaluator: Arc<dyn Evaluator>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let result = match path.as_str() {
        POD_USAGE => usage(request, evaluator).await.map(|answer| frame(&answer)),
        HEALTH_CHECK => health(request, evaluator).await.map(|answer| frame(&answer)),
        _ => Err(Failed("12", format!("there is no {path}"))),
    };
    let mut response = match result {
        Ok(message) => Response::new(Full::new(message).with_trailers(async { Some(Ok(success())) }).boxed()),
        Err(Failed(status, text)) => {
            let mut response = Response::new(Empty::new().boxed());
            response.headers_mut().insert(STATUS, HeaderValue::from_static(status));
            if let Ok(text) = HeaderValue::from_str(&percent_encoded(&text)) {
                response.headers_mut().insert(MESSAGE, text);
            }
            response
        }
    };
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

fn success() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static(STATUS), HeaderValue::from_static("0"))])
}

async fn received<M: Message + Default>(request: Request<Incoming>) -> Result<M, Failed> {
    let body = Limited::new(request.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| Failed(RESOURCE_EXHAUSTED, format!("reading the request: {error}")))?;
    message(body.to_bytes()).map_err(|error| Failed("3", error.to_string()))
}

async fn health(
    request: Request<Incoming>,
    evaluator: Arc<dyn Evaluator>,
) -> Result<HealthCheckResponse, Failed> {
    received::<HealthCheckRequest>(request).await?;
    let healthy = tokio::task::spawn_blocking(move || evaluator.is_healthy()).await;
    // A check that panicked says enough.
    Ok(HealthCheckResponse { healthy: healthy.unwrap_or(false) })
}

async fn usage(
    request: Request<Incoming>,
    evaluator: Arc<dyn Evaluator>,
) -> Result<PodUsageResponse, Failed> {
    let request: PodUsageRequest = received(request).await?;
    let evaluated = tokio::task::spawn_blocking(move || {
        let pod = request.pod.ok_or_else(|| Error::new("the request has no pod"))?;
        let others = OtherPods::new(request.pods_state.into_iter().map(|other| other.pod_json));
        evaluator.evaluate(&Pod::new(pod.pod_json), &others)
    });
    let evaluated =
        evaluated.await.unwrap_or_else(|_| Err(Error::new("the evaluator panicked, see its log")));
    Ok(response(evaluated))
}

/// All inner messages are always there: application-aware-quota's controller relies on it.
fn response(evaluated: Result<Answer, Error>) -> PodUsageResponse {
    let (matched, json, error) = match evaluated {
        Ok(Answer::NoMatch) => (false, "{}".to_owned(), protocol::Error::default()),
        Ok(Answer::Charge(amounts)) => match serde_json::to_string(&amounts) {
            Ok(json) => (true, json, protocol::Error::default()),
            Err(error) => (false, "{}".to_owned(), failure(error.to_string())),
        },
        Err(error) => (false, "{}".to_owned(), failure(error.text().to_owned())),
    };
    PodUsageResponse {
        resource_list: Some(ResourceList { resource_list_json: json.into() }),
        r#match: matched,
        error: Some(error),
    }
}

const fn failure(error_message: String) -> protocol::Error {
    protocol::Error { error: true, error_message }
}

/// As gRPC writes the text of an outcome: what is not printable ASCII, and the percent sign, in hexadecimal.
fn percent_encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
