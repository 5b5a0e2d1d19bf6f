//! Finalizers of `AAQ`s and `MTQ`s. The operator takes them away; without it such an object, and with it its CRD, could
//! never be deleted.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::names;
use sluice_manifests::uninstall::{ObjectName, orders};

use super::requests::{api_of, list_kind};
use crate::requests::{RequestError, failed, patiently};

/// One of these objects.
pub(super) struct Finalized {
    object: ObjectName,
    version: String,
    /// Without ours.
    others: Vec<String>,
}

/// Those that have one of ours.
pub(super) async fn finalized(client: &Client) -> Result<Vec<Finalized>, RequestError> {
    let is_ours = |finalizer: &String| [names::FINALIZER, names::MTQ_FINALIZER].contains(&finalizer.as_str());
    let mut all = Vec::new();
    for kind in orders() {
        for found in list_kind(client, &kind, None, "").await? {
            let metadata = found.metadata;
            let (ours, others): (Vec<_>, Vec<_>) =
                metadata.finalizers.unwrap_or_default().into_iter().partition(is_ours);
            if !ours.is_empty() {
                let name = metadata.name.unwrap_or_default();
                let object = ObjectName { kind: kind.clone(), namespace: None, name };
                let version = metadata.resource_version.unwrap_or_default();
                all.push(Finalized { object, version, others });
            }
        }
    }
    Ok(all)
}

/// Takes them off all objects. What changes meanwhile is found at the next look.
pub(super) async fn unfinalize(client: &Client) -> Result<(), RequestError> {
    let params = PatchParams { field_manager: Some(names::UNINSTALL.to_owned()), ..PatchParams::default() };
    for Finalized { object, version, others } in finalized(client).await? {
        let api = api_of(client, &object);
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version, "finalizers": others } }));
        match patiently(|| api.patch(&object.name, &params, &patch)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(error) => return Err(failed("patch", object.to_string(), object.kind.qualified())(error)),
        }
    }
    Ok(())
}
