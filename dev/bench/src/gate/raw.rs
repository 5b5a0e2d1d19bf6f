//! The limit to compare with: nothing but PATCHes that remove gates.

use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Resource as _};
use serde_json::json;
use sluice_api::names;
use sluice_index::PodWire;
use sluice_runtime::client::with_deadline;

/// As in the controller.
const DEADLINE: Duration = Duration::from_secs(5);

/// Removes the gate of every pod, `concurrency` at a time.
pub(super) async fn release_all(client: &Client, pods: Vec<Pod>, concurrency: usize) -> anyhow::Result<()> {
    futures::stream::iter(pods.into_iter().map(|pod| release(client, pod)))
        .buffer_unordered(concurrency)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// The same request, to the byte, that the controller sends; the answer is decoded as there.
pub(super) async fn release(client: &Client, pod: Pod) -> anyhow::Result<()> {
    let meta = pod.metadata;
    let (namespace, name) = (meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
    let patch: json_patch::Patch = serde_json::from_value(json!([
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        {"op": "test", "path": "/spec/schedulingGates", "value": [{"name": names::GATE}]},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]))?;
    let path = Pod::url_path(&(), Some(&namespace));
    let request = Request::new(&path).patch(&name, &PatchParams::default(), &Patch::Json::<()>(patch))?;
    let released = with_deadline(DEADLINE, client.request::<PodWire>(request)).await;
    let released = released.with_context(|| format!("removing the gate of {namespace}/{name}"))?;
    anyhow::ensure!(released.spec.scheduling_gates.is_empty(), "{namespace}/{name} still has a gate");
    Ok(())
}
