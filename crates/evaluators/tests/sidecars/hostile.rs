//! Servers that answer what nobody may answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use sluice_evaluator_sdk::protocol::{
    HEALTH_CHECK, HealthCheckResponse, PodUsageResponse, ResourceList, frame,
};
use sluice_evaluators::{Config, Evaluators, Failure, Verdict};
use tokio::net::UnixListener;

use crate::sidecar::{PATIENCE, config, question, until, until_ready};

type Body = BoxBody<Bytes, Infallible>;

fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

fn trailers(status: &'static str) -> HeaderMap {
    HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(status))])
}

/// A body and the trailers of success.
fn whole(body: impl Into<Bytes>) -> Response<Body> {
    response(Full::new(body.into()).with_trailers(async { Some(Ok(trailers("0"))) }).boxed())
}

/// A healthy evaluator that answers each question like this; a pod named `good` gets a good answer.
async fn evaluator(
    answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> (Evaluators, tempfile::TempDir) {
    evaluator_repeating(answer, PATIENCE).await
}

/// The same, of which an answer is asked for once more so often.
async fn evaluator_repeating(
    answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
    repeat_every: Duration,
) -> (Evaluators, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("s.sock")).unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let is_health = request.uri().path() == HEALTH_CHECK;
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let is_good = body.windows(13).any(|text| text == br#""name":"good""#);
                    Ok::<_, Infallible>(if is_health {
                        whole(frame(&HealthCheckResponse { healthy: true }))
                    } else if is_good {
                        whole(frame(&PodUsageResponse {
                            resource_list: Some(ResourceList { resource_list_json: r#"{"pods":1}"#.into() }),
                            r#match: true,
                            error: None,
                        }))
                    } else {
                        answer()
                    })
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    let evaluators = Evaluators::new(vec![Config { repeat_every, ..config(directory.path()) }]);
    until_ready(&evaluators).await;
    (evaluators, directory)
}

/// What is told of such an answer, of each of ten pods; a good one is still taken then.
async fn told(answer: impl Fn() -> Response<Body> + Send + Sync + 'static) -> String {
    let (evaluators, _directory) = evaluator(answer).await;
    let mut said = String::new();
    for n in 0..10 {
        said = evaluators.ask(question(&format!("bad-{n}"))).await.unwrap_err().to_string();
    }
    let verdict = evaluators.ask(question("good")).await.map(|said| said.verdict);
    assert!(matches!(verdict, Ok(Verdict::Charge(_))), "after {said}: {verdict:?}");
    assert!(said.len() <= 400 && !said.chars().any(char::is_control), "{said}");
    said
}

#[tokio::test]
async fn answers_that_are_no_answers() {
    let unreadable = |why: &str| {
        let remedy = "see whether it speaks application-aware-quota's protocol";
        format!("evaluator label gave an answer that cannot be read: {why}, {remedy}")
    };
    assert_eq!(told(|| whole("")).await, unreadable("there is no message in it"));
    assert_eq!(told(|| whole("\0\0\0\0\0")).await, unreadable("it has no resource list"), "an empty message");
    assert_eq!(told(|| whole("\u{1}\0\0\0\0")).await, unreadable("the message is compressed"));
    let length = "the message says that it has 1 bytes, and 0 follow";
    assert_eq!(told(|| whole("\0\0\0\0\u{1}")).await, unreadable(length));
    assert!(
        told(|| whole("\0\0\0\0\u{2}\u{a}\u{5}"))
            .await
            .contains("cannot be read: the message cannot be read")
    );
    // Field 3 with a text that is no UTF-8.
    let text = Bytes::from_static(b"\0\0\0\0\x07\x1a\x05\x08\x01\x12\x01\xff");
    assert!(told(move || whole(text.clone())).await.contains("cannot be read"));
    let html = || {
        let mut page = whole("<html>");
        page.headers_mut().insert("content-type", HeaderValue::from_static("text/html"));
        page
    };
    assert_eq!(told(html).await, unreadable("it answers with content type \"text/html\""));
    let teapot = || {
        let mut response = whole("");
        *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
        response
    };
    assert_eq!(told(teapot).await, unreadable("it answers with HTTP status 418"));
    let cut = || response(Full::new(Bytes::from_static(b"\0\0\0\0\0")).boxed());
    assert_eq!(told(cut).await, unreadable("its answer ends without grpc-status"));
}

/// One that says something else each time: found by asking the same twice, and told with both. Whoever asks gets one answer
/// to each question, so a charge stays what it was.
#[tokio::test]
async fn answers_that_differ_are_told_and_their_end_is() {
    let (asked, is_honest) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let honest = is_honest.clone();
    let alternating = move || {
        let number = if honest.load(Ordering::SeqCst) { 0 } else { asked.fetch_add(1, Ordering::SeqCst) % 2 };
        whole(frame(&PodUsageResponse {
            resource_list: Some(ResourceList {
                resource_list_json: format!(r#"{{"cpu":{}}}"#, number + 1).into(),
            }),
            r#match: true,
            error: None,
        }))
    };
    let (evaluators, _directory) = evaluator_repeating(alternating, Duration::ZERO).await;
    assert!(evaluators.ask(question("a")).await.is_ok());
    let state = until(&evaluators, |state| state.differs.is_some()).await;
    let said = "it was asked the same about a pod of namespace t twice, and said ";
    let differs = state.differs.unwrap();
    assert!(differs.starts_with(said) && differs.contains("cpu=2"), "{differs}");
    let mut registry = Registry::default();
    evaluators.metrics().register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"evaluator_inconsistent_answers_total{evaluator="label"} "#), "{text}");

    is_honest.store(true, Ordering::SeqCst);
    let asking = async {
        loop {
            assert!(evaluators.ask(question("a")).await.is_ok());
        }
    };
    tokio::select! {
        _ = until(&evaluators, |state| state.differs.is_none()) => {}
        () = asking => {}
    }
}

#[tokio::test]
async fn outcomes_of_grpc() {
    let failed = |status: &'static str, text: &'static str| {
        move || {
            let mut response = response(Empty::new().boxed());
            response.headers_mut().insert("grpc-status", HeaderValue::from_static(status));
            response.headers_mut().insert("grpc-message", HeaderValue::from_static(text));
            response
        }
    };
    assert_eq!(told(failed("2", "no%0Alicence")).await, "evaluator label says \"no\\u000alicence\"");
    assert_eq!(told(failed("12", "")).await, "evaluator label says \"gRPC code 12\"");
    assert!(told(failed("8", "too large")).await.contains("cannot be asked: pod and namespace are"));
}

#[tokio::test]
async fn answers_without_end() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let endless = move || {
        let counted = counted.clone();
        let chunk = Bytes::from(vec![0; 64 << 10]);
        response(BoxBody::new(StreamBody::new(stream::repeat(chunk).map(move |chunk| {
            counted.fetch_add(chunk.len(), Ordering::Relaxed);
            Ok(Frame::data(chunk))
        }))))
    };
    let said = told(endless).await;
    assert!(said.contains("the answer has more than 263168 bytes"), "{said}");
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 64 << 20, "ten answers took {sent} bytes");
    let large = || whole(vec![0; 64 << 20]);
    assert!(told(large).await.contains("the answer has more than 263168 bytes"));
}

#[tokio::test]
async fn a_list_that_cannot_be_charged_is_named() {
    let list = |json: &'static str| {
        move || {
            whole(frame(&PodUsageResponse {
                resource_list: Some(ResourceList { resource_list_json: json.into() }),
                r#match: true,
                error: None,
            }))
        }
    };
    let said = "evaluator label answered what cannot be charged: ";
    assert_eq!(
        told(list(r#"{"requests.memory":-1}"#)).await,
        format!("{said}requests.memory: -1: an amount must be 0 or more")
    );
    assert!(told(list("null")).await.starts_with(&format!("{said}the list charges nothing")));
    assert!(
        told(list("[1]")).await.starts_with(&format!("{said}the list is not JSON of names and quantities"))
    );
    let (evaluators, _directory) = evaluator(list("{}")).await;
    let failed = evaluators.ask(question("bad")).await.unwrap_err().failure;
    assert_eq!(failed, Failure::Refused(sluice_engine::evaluation::Refusal::Nothing));
}
