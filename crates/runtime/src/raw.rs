//! Requests whose answers are needed as they came: with their status code and the API server's clock.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, DATE};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;

use crate::client::with_deadline;

/// A JSON patch (RFC 6902).
pub const JSON_PATCH: &str = "application/json-patch+json";
/// A JSON object.
pub const JSON: &str = "application/json";

/// An answer of the API server, an error status included.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status code.
    pub code: u16,
    /// The API server's clock when it answered, in whole seconds, rounded down.
    pub date: Option<Timestamp>,
    /// The object, or a `Status`.
    pub body: Bytes,
}

impl Reply {
    /// Whether the request was carried out.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.code >= 200 && self.code < 300
    }

    /// The object of a success.
    ///
    /// # Errors
    /// The API server's refusal, or what is wrong with the object.
    pub fn decode<T: DeserializeOwned>(&self) -> kube::Result<T> {
        self.check()?;
        serde_json::from_slice(&self.body).map_err(kube::Error::SerdeError)
    }

    /// Nothing, of a success.
    ///
    /// # Errors
    /// The API server's refusal.
    pub fn check(&self) -> kube::Result<()> {
        if self.is_success() { Ok(()) } else { Err(kube::Error::Api(self.status().boxed())) }
    }

    /// The refusal. A body that is no `Status` becomes its message.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status: Status = serde_json::from_slice(&self.body).unwrap_or_else(|_| {
            Status::failure(&String::from_utf8_lossy(&self.body), "Unreadable").with_code(self.code)
        });
        status.code = self.code;
        status
    }
}

/// What to send.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Type and bytes of the body, if there is one.
    pub body: Option<(&'static str, Vec<u8>)>,
}

/// Sends a request and reads the whole answer, in at most `deadline`.
///
/// # Errors
/// When there is no answer. A refusal is an answer.
pub async fn send(client: &Client, call: Call, deadline: Duration) -> kube::Result<Reply> {
    let mut request = Request::builder().method(call.method).uri(call.path);
    let mut bytes = Vec::new();
    if let Some((kind, body)) = call.body {
        request = request.header(CONTENT_TYPE, kind);
        bytes = body;
    }
    let request = request.body(Body::from(bytes)).map_err(kube::Error::HttpError)?;
    with_deadline(deadline, async {
        let response = client.send(request).await?;
        let code = response.status().as_u16();
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok()).and_then(http_date);
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Reply { code, date, body })
    })
    .await
}

/// Reads the date of an HTTP header, such as `Sat, 21 Nov 2026 11:18:09 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read() {
        let date = http_date("Sat, 21 Nov 2026 11:18:09 GMT").unwrap();
        assert_eq!(date.to_string(), "2026-11-21T11:18:09Z");
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn a_refusal_that_is_no_status_keeps_its_text() {
        let reply = Reply { code: 502, date: None, body: Bytes::from_static(b"bad gateway") };
        let error = reply.decode::<Status>().unwrap_err();
        assert!(error.to_string().contains("bad gateway"), "{error}");
        assert_eq!(crate::retry::classify(&error), crate::retry::Failure::Server(502));
    }
}
