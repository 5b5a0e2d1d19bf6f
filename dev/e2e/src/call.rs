//! Requests to the API server as they go over the wire: any verb, any content type, any body.

use anyhow::Context as _;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::Value;

/// Content type of a JSON object.
pub const JSON: &str = "application/json";
/// Content type of a JSON patch.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Content type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// Content type of a strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Content type of a server-side apply; JSON is YAML.
pub const APPLY: &str = "application/apply-patch+yaml";

/// What the API server said.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status.
    pub code: u16,
    /// The object, or the `Status` of a request that was refused.
    pub body: Value,
}

impl Response {
    /// `message` of a `Status`; empty without one.
    #[must_use]
    pub fn message(&self) -> &str {
        self.body.get("message").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the request was done.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        self.code < 300
    }
}

/// Sends one request with a body.
///
/// # Errors
/// When there is no answer, or one that is not JSON. A refusal is a [`Response`].
pub async fn call(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> anyhow::Result<Response> {
    send(client, method, path, (content_type, JSON), body).await
}

/// `types`: of the request's body, and of the answer's.
async fn send(
    client: &Client,
    method: Method,
    path: &str,
    types: (&str, &str),
    body: &Value,
) -> anyhow::Result<Response> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", types.0).header("Accept", types.1);
    answer(client, request.body(kube::client::Body::from(serde_json::to_vec(body)?))?).await
}

/// Sends one request without a body.
///
/// # Errors
/// As [`call`].
pub async fn get(client: &Client, path: &str) -> anyhow::Result<Response> {
    answer(client, Request::get(path).body(kube::client::Body::empty())?).await
}

/// Creates an object that may be anything.
///
/// # Errors
/// As [`call`].
pub async fn post(client: &Client, path: &str, body: &Value) -> anyhow::Result<Response> {
    call(client, Method::POST, path, JSON, body).await
}

/// As [`call`], and the answer is the table that kubectl prints.
///
/// # Errors
/// As [`call`].
pub async fn call_for_table(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> anyhow::Result<Response> {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    send(client, method, path, (content_type, table), body).await
}

async fn answer(client: &Client, request: Request<kube::client::Body>) -> anyhow::Result<Response> {
    let what = format!("{} {}", request.method(), request.uri());
    let response = client.send(request).await.with_context(|| what.clone())?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await?.to_bytes();
    let text = || format!("{what} answered {code}: {}", String::from_utf8_lossy(&bytes));
    Ok(Response { code, body: serde_json::from_slice(&bytes).with_context(text)? })
}
