//! Requests whose answers are needed as they came: with their status code, the API server's clock, or as a type that is
//! narrower than the kind. Where neither matters, `kube::Api` is used. Paths and queries are made by `kube` alone.

mod answer;

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use jiff::Timestamp;
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

pub use self::answer::Answer;
use crate::client::with_deadline;
use crate::date_header::date_of;

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

/// A request as [`kube::core::Request`] builds it.
pub type Built = Result<Request<Vec<u8>>, kube::core::request::Error>;

/// Builds requests about the objects of a kind: of one namespace, or of all.
#[must_use]
pub fn objects<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> kube::core::Request {
    kube::core::Request::new(K::url_path(&(), namespace))
}

/// Sends a request and reads the whole answer, in at most `deadline`.
///
/// # Errors
/// When the request cannot be built, or there is no answer. A refusal is an answer.
pub async fn send(client: &Client, request: Built, deadline: Duration) -> kube::Result<Reply> {
    let reply = send_at_most(client, request, deadline, usize::MAX).await?;
    reply.ok_or_else(|| kube::Error::Service("the answer is too large".into()))
}

/// As [`send`]; `None` if the answer has more than `most` bytes, which are not kept.
///
/// # Errors
/// As [`send`].
pub async fn send_at_most(
    client: &Client,
    request: Built,
    deadline: Duration,
    most: usize,
) -> kube::Result<Option<Reply>> {
    let request = request.map_err(kube::Error::BuildRequest)?.map(Body::from);
    with_deadline(deadline, async {
        let response = client.send(request).await?;
        let code = response.status().as_u16();
        let date = date_of(&response);
        match Limited::new(response.into_body(), most).collect().await {
            Ok(body) => Ok(Some(Reply { code, date, body: body.to_bytes() })),
            Err(error) if error.is::<LengthLimitError>() => Ok(None),
            Err(error) => Err(kube::Error::Service(error)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_is_no_status_keeps_its_text() {
        let reply = Reply { code: 502, date: None, body: Bytes::from_static(b"bad gateway") };
        let error = reply.decode::<Status>().unwrap_err();
        assert!(error.to_string().contains("bad gateway"), "{error}");
        assert_eq!(crate::retry::classify(&error), crate::retry::Failure::Server(502));
    }
}
