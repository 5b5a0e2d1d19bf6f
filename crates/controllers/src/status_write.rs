//! A write of the status of one of our own objects.

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::Value;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::raw::{Call, send};

const DEADLINE: Duration = Duration::from_secs(5);
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Sends a merge patch to `path`, and counts it as one of `plural`.
///
/// # Errors
/// When there is no answer in 5 s, or it is a refusal.
pub(crate) async fn patch_status(
    client: &Client,
    writes: &ApiWrites,
    plural: &'static str,
    path: &str,
    patch: &Value,
) -> kube::Result<()> {
    let body = Some((MERGE_PATCH, patch.to_string().into_bytes()));
    let call = Call { method: Method::PATCH, path: path.to_owned(), body };
    let write = async { send(client, call, DEADLINE).await?.check() };
    writes.record(plural, "patch", write).await
}
