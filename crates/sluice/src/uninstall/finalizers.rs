//! Finalizers of `AAQ`s and `MTQ`s. The operator takes them away; without it such an object, and with it its CRD, could
//! never be deleted.

use kube::Client;
use kube::api::{ObjectMeta, Patch, PatchParams};
use serde_json::json;
use sluice_api::{has_put_finalizer, names};
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

/// Those that have one that is to go.
pub(super) async fn finalized(client: &Client) -> Result<Vec<Finalized>, RequestError> {
    let mut all = Vec::new();
    for kind in orders() {
        for found in list_kind(client, &kind, None, "").await? {
            let metadata = found.metadata;
            let (ours, others): (Vec<_>, Vec<_>) =
                metadata.finalizers.iter().flatten().cloned().partition(|each| is_to_go(each, &metadata));
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

/// Whether it has one of the two names, and either the object waits for it or our operator has put it there: that of another
/// operator, which may be at work, is its own to take as long as nothing waits.
fn is_to_go(finalizer: &str, of: &ObjectMeta) -> bool {
    let is_named = [names::FINALIZER, names::MTQ_FINALIZER].contains(&finalizer);
    let managed = of.managed_fields.as_deref();
    is_named && (of.deletion_timestamp.is_some() || has_put_finalizer(managed, finalizer, names::OPERATOR))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_of_another_operator_stays_until_the_object_waits_for_it() {
        let is = |finalizer: &str, manager: &str, deleted: Option<&str>| {
            let item = format!("v:\"{finalizer}\"");
            let fields = json!({ "f:metadata": { "f:finalizers": { item: {} } } });
            let metadata = json!({
                "name": "aaq", "finalizers": [finalizer], "deletionTimestamp": deleted,
                "managedFields": [{ "manager": manager, "operation": "Update", "fieldsV1": fields }],
            });
            is_to_go(finalizer, &serde_json::from_value(metadata).unwrap())
        };
        assert!(is(names::FINALIZER, names::OPERATOR, None));
        assert!(!is(names::FINALIZER, "aaq-operator", None));
        assert!(!is(names::MTQ_FINALIZER, "mtq-operator", None));
        for finalizer in [names::FINALIZER, names::MTQ_FINALIZER] {
            assert!(is(finalizer, "other", Some("2026-01-01T00:00:00Z")), "{finalizer}");
        }
        assert!(!is("example.com/other", names::OPERATOR, Some("2026-01-01T00:00:00Z")));
    }
}
