//! One connection to one process of an evaluator.
//!
//! Written on hyper's HTTP/2, not on tonic: tonic's channel connects again by itself, perhaps to another process behind the
//! same path, copies each request, and answers a missing message with a default. What is left of gRPC for two unary calls
//! is a prefix of five bytes and two trailers.
//!
//! grpc-go ends connections that ping more often than each five minutes, so nothing pings here: no keep-alive, and no
//! adaptive window, which measures by pings. A connection may be idle for ever.

mod body;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use sluice_engine::evaluation::MAX_ANSWER;
use sluice_evaluator_sdk::protocol::{
    CONTENT_TYPE, FrameError, HEALTH_CHECK, HealthCheckRequest, HealthCheckResponse, MESSAGE, POD_USAGE, Pod,
    PodUsageRequest, PodUsageResponse, RESOURCE_EXHAUSTED, STATUS, frame, frame_of, message,
};
use tokio::net::UnixStream;
use tokio::sync::watch;

use self::body::Frames;
use crate::OtherPods;

/// Largest body of an answer: the list and what is around it.
const MOST_BODY: usize = MAX_ANSWER + 1024;
/// Bytes of an answer that may be on the way, of one call and of all.
const WINDOWS: (u32, u32) = (512 << 10, 2 << 20);
/// Largest headers and trailers of an answer.
const MOST_HEADERS: u32 = 16 << 10;

/// Why a call had no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection ended, or refused the call.
    #[error("the connection ended: {0}")]
    Lost(String),
    /// The answer is larger than any sensible one.
    #[error("the answer has more than {MOST_BODY} bytes")]
    AnswerTooLarge,
    /// The question is larger than the evaluator takes.
    #[error("the evaluator does not take a question of this size: {0}")]
    QuestionTooLarge(String),
    /// The call ended with an error of gRPC.
    #[error("code {code}: {text}")]
    Status {
        /// The number of the outcome.
        code: String,
        /// Its text.
        text: String,
    },
    /// It is not gRPC.
    #[error("{0}")]
    NotGrpc(String),
    /// The message is not that of the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// A connection. Dropping it ends it, and all calls over it.
#[derive(Debug)]
pub struct Link {
    sender: SendRequest<Frames>,
    /// The same socket: hyper ends a connection only when all its calls have ended.
    socket: std::os::unix::net::UnixStream,
    closed: watch::Receiver<bool>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

impl Link {
    /// Speaks HTTP/2 over a connection to a socket.
    ///
    /// # Errors
    /// When the connection ends at once.
    pub async fn over(stream: UnixStream) -> Result<Self, CallError> {
        let lost = |error: &dyn std::error::Error| CallError::Lost(error.to_string());
        let stream = stream.into_std().map_err(|error| lost(&error))?;
        let socket = stream.try_clone().map_err(|error| lost(&error))?;
        let stream = UnixStream::from_std(stream).map_err(|error| lost(&error))?;
        let handshake = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_header_list_size(MOST_HEADERS)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| lost(&error))?;
        let (close, closed) = watch::channel(false);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to an evaluator ended");
            }
            let _ = close.send(true);
        });
        Ok(Self { sender, socket, closed })
    }

    /// Ends the connection, and all calls over it.
    pub fn close(&self) {
        // It may have ended already.
        drop(self.socket.shutdown(std::net::Shutdown::Both));
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Without its sender it has ended too.
        *self.closed.borrow() || self.closed.has_changed().is_err()
    }

    /// Waits for its end.
    pub async fn closed(&self) {
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Asks about a pod. The future does not borrow the link: it goes on until there is an answer or the connection ends.
    pub fn usage(
        &self,
        pod_json: &Bytes,
        others: &OtherPods,
    ) -> impl Future<Output = Result<PodUsageResponse, CallError>> + Send + use<> {
        let pod = PodUsageRequest { pod: Some(Pod { pod_json: pod_json.clone() }), pods_state: Vec::new() };
        let first = frame_of(&pod, others.bytes().len());
        call(self.sender.clone(), POD_USAGE, Frames::new([first, others.bytes().clone()]))
    }

    /// Asks whether the process is healthy; `None`: no answer within `timeout`.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn is_healthy(&self, timeout: Duration) -> Option<Result<bool, CallError>> {
        let request = Frames::new([frame(&HealthCheckRequest {}), Bytes::new()]);
        let call = call::<HealthCheckResponse>(self.sender.clone(), HEALTH_CHECK, request);
        let answer = tokio::time::timeout(timeout, call).await.ok()?;
        Some(answer.map(|answer| answer.healthy))
    }

    /// Sends any bytes as the message of a call. For tests of evaluators.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn raw(&self, path: &'static str, body: Bytes) -> Result<PodUsageResponse, CallError> {
        call(self.sender.clone(), path, Frames::new([body, Bytes::new()])).await
    }
}

async fn call<M: Message + Default>(
    mut sender: SendRequest<Frames>,
    path: &'static str,
    body: Frames,
) -> Result<M, CallError> {
    let lost = |error: hyper::Error| CallError::Lost(error.to_string());
    let request = Request::post(format!("http://localhost{path}"))
        .header(http::header::CONTENT_TYPE, CONTENT_TYPE)
        .header(http::header::TE, "trailers")
        .body(body)
        .map_err(|error| CallError::NotGrpc(error.to_string()))?;
    sender.ready().await.map_err(lost)?;
    let response = sender.send_request(request).await.map_err(lost)?;
    let (head, body) = response_of_grpc(response)?.into_parts();
    // Without a body the outcome is in the headers.
    check_status(&head.headers, Missing::Fine)?;
    let body =
        Limited::new(body, MOST_BODY).collect().await.map_err(|error| match error
            .downcast::<http_body_util::LengthLimitError>(
        ) {
            Ok(_) => CallError::AnswerTooLarge,
            Err(error) => CallError::Lost(error.to_string()),
        })?;
    if let Some(trailers) = body.trailers() {
        check_status(trailers, Missing::Error)?;
    } else if !head.headers.contains_key(STATUS) {
        return Err(without_status());
    }
    Ok(message(body.to_bytes())?)
}

fn response_of_grpc(response: Response<Incoming>) -> Result<Response<Incoming>, CallError> {
    let kind =
        response.headers().get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !response.status().is_success() {
        return Err(CallError::NotGrpc(format!(
            "it answers with HTTP status {}",
            response.status().as_u16()
        )));
    }
    if kind.starts_with(CONTENT_TYPE.as_bytes()) {
        return Ok(response);
    }
    Err(CallError::NotGrpc(format!("it answers with content type {:?}", String::from_utf8_lossy(kind))))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Fine,
    Error,
}

fn check_status(headers: &HeaderMap, missing: Missing) -> Result<(), CallError> {
    let Some(code) = headers.get(STATUS) else {
        return if missing == Missing::Fine { Ok(()) } else { Err(without_status()) };
    };
    let code = String::from_utf8_lossy(code.as_bytes()).into_owned();
    let text = headers.get(MESSAGE).map(|text| percent_decoded(text.as_bytes())).unwrap_or_default();
    match code.as_str() {
        "0" => Ok(()),
        RESOURCE_EXHAUSTED => Err(CallError::QuestionTooLarge(text)),
        _ => Err(CallError::Status { code, text }),
    }
}

fn without_status() -> CallError {
    CallError::NotGrpc(format!("its answer ends without {STATUS}"))
}

fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let code = after.first_chunk::<2>().filter(|_| *first == b'%');
        let byte = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A link and which one it is: another number is another process, or the same one connected anew.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    pub(crate) number: u64,
    pub(crate) link: Arc<Link>,
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{CallError, Missing, check_status, percent_decoded};

    #[test]
    fn texts_of_outcomes_are_decoded() {
        assert_eq!(percent_decoded(b"a%20b%C3%A4"), "a bä");
        assert_eq!(percent_decoded(b"100%, %zz %2"), "100%, %zz %2");
        assert_eq!(percent_decoded(b"%ff"), "\u{fffd}");
    }

    #[test]
    fn an_outcome_is_success_or_an_error() {
        let check = |code: Option<&str>, missing| {
            let mut headers = HeaderMap::new();
            if let Some(code) = code {
                headers.insert("grpc-status", HeaderValue::from_str(code).expect("a header"));
                headers.insert("grpc-message", HeaderValue::from_static("too%20large"));
            }
            check_status(&headers, missing)
        };
        assert_eq!(check(Some("0"), Missing::Error), Ok(()));
        assert_eq!(check(None, Missing::Fine), Ok(()));
        assert!(
            matches!(check(None, Missing::Error), Err(CallError::NotGrpc(_))),
            "an answer that was cut off"
        );
        assert_eq!(check(Some("8"), Missing::Error), Err(CallError::QuestionTooLarge("too large".into())));
        let status = CallError::Status { code: "12".into(), text: "too large".into() };
        assert_eq!(check(Some("12"), Missing::Error), Err(status));
    }
}
