//! A write of the status of an object.

use std::time::Duration;

use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::Value;

use crate::metrics::ApiWrites;
use crate::request::send;

const DEADLINE: Duration = Duration::from_secs(5);

/// Sends a merge patch of the status of one of `objects`, and counts it as one of `plural`.
///
/// # Errors
/// When there is no answer in 5 s, or it is a refusal.
pub async fn patch_status(
    client: &Client,
    writes: &ApiWrites,
    (plural, objects, name): (&'static str, &Request, &str),
    patch: &Value,
) -> kube::Result<()> {
    let request = objects.patch_subresource("status", name, &PatchParams::default(), &Patch::Merge(patch));
    let write = async { send(client, request, DEADLINE).await?.check() };
    writes.record(plural, "patch", write).await
}
