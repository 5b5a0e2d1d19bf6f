//! Does the steps. Decides nothing.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use sluice_api::VirtualMachineMigrationResourceQuota;
use sluice_runtime::request::{Built, objects, send};

use super::plan::{Change, Step};

const DEADLINE: Duration = Duration::from_secs(10);

/// Does one step; what is gone already is done.
pub(super) async fn carry_out(client: &Client, namespace: &str, step: &Step) -> kube::Result<()> {
    let Some(request) = request(namespace, step)? else { return Ok(()) };
    let reply = send(client, request, DEADLINE).await?;
    if reply.code == 404 { Ok(()) } else { reply.check() }
}

/// The request that does a step; `None` if there is nothing to send.
fn request(namespace: &str, step: &Step) -> kube::Result<Option<Built>> {
    let quotas = || objects::<ResourceQuota>(Some(namespace));
    let params = PatchParams::default();
    let request = match step {
        Step::Say(_) => return Ok(None),
        Step::LowerStatus(change) => {
            let patch = json_patch(change_of("/status/hard", change))?;
            quotas().patch_subresource("status", &change.quota, &params, &patch)
        }
        Step::RestoreSpec(change) => {
            let patch = json_patch(change_of("/spec/hard", change))?;
            quotas().patch(&change.quota, &params, &patch)
        }
        Step::DeleteLock(lock) => {
            let of = Preconditions { uid: Some(lock.uid.clone()), resource_version: None };
            let params = DeleteParams::default().preconditions(of);
            objects::<ValidatingWebhookConfiguration>(None).delete(&lock.name, &params)
        }
        Step::ClearRecord { name, uid, text } => {
            let originals = "/status/originalBlockingResourceQuotas";
            let patch = json_patch(json!([
                { "op": "test", "path": "/metadata/uid", "value": uid },
                { "op": "test", "path": originals, "value": text },
                { "op": "remove", "path": originals },
                { "op": "add", "path": "/status/migrationsToBlockingResourceQuotas", "value": {} },
            ]))?;
            let records = objects::<VirtualMachineMigrationResourceQuota>(Some(namespace));
            records.patch_subresource("status", name, &params, &patch)
        }
    };
    Ok(Some(request))
}

fn json_patch(operations: Value) -> kube::Result<Patch<()>> {
    serde_json::from_value(operations).map(Patch::Json).map_err(kube::Error::SerdeError)
}

fn change_of(map: &str, change: &Change) -> Value {
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": change.uid })];
    for (key, from, to) in &change.keys {
        let path = format!("{map}/{}", key.replace('~', "~0").replace('/', "~1"));
        operations.push(json!({ "op": "test", "path": path, "value": from.to_string() }));
        operations.push(json!({ "op": "replace", "path": path, "value": to.to_string() }));
    }
    Value::Array(operations)
}

#[cfg(test)]
mod tests {
    use sluice_engine::Quantity;

    use super::*;
    use crate::mtq_cleanup::plan::Lock;

    fn sent(step: &Step) -> (String, String, Value) {
        let request = request("shop", step).unwrap().unwrap().unwrap();
        let kind = request.headers()["content-type"].to_str().unwrap().to_owned();
        let body = serde_json::from_slice(request.body()).unwrap();
        (format!("{} {}", request.method(), request.uri()), kind, body)
    }

    #[test]
    fn a_quota_is_changed_only_where_it_is_as_it_was_read() {
        let amount = |text| Quantity::parse(text).unwrap();
        let keys = vec![("count/a.b".to_owned(), amount("2"), amount("1"))];
        let change = Change { quota: "rq".to_owned(), uid: "q".to_owned(), keys };
        let patch = |map: &str| {
            let path = format!("{map}/count~1a.b");
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "q" },
                { "op": "test", "path": path, "value": "2" },
                { "op": "replace", "path": path, "value": "1" },
            ])
        };
        let (quota, kind) =
            ("PATCH /api/v1/namespaces/shop/resourcequotas/rq", "application/json-patch+json");
        let lowered = (format!("{quota}/status?"), kind.to_owned(), patch("/status/hard"));
        assert_eq!(sent(&Step::LowerStatus(change.clone())), lowered);
        let restored = (format!("{quota}?"), kind.to_owned(), patch("/spec/hard"));
        assert_eq!(sent(&Step::RestoreSpec(change)), restored);
    }

    #[test]
    fn a_lock_is_deleted_and_a_record_cleared_only_if_it_is_still_the_same() {
        let lock =
            Lock { name: "lock.shop.com".to_owned(), uid: "l".to_owned(), genuine: true, created: None };
        let (path, kind, options) = sent(&Step::DeleteLock(lock));
        let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        assert_eq!((path, kind), (format!("DELETE {hooks}/lock.shop.com?"), "application/json".to_owned()));
        assert_eq!(options["preconditions"], json!({ "uid": "l" }));
        let clear = Step::ClearRecord {
            name: "mtq".to_owned(),
            uid: "r".to_owned(),
            text: json!([{ "name": "rq" }]),
        };
        let (path, _, patch) = sent(&clear);
        let records = "/apis/mtq.kubevirt.io/v1alpha1/namespaces/shop/virtualmachinemigrationresourcequotas";
        assert_eq!(path, format!("PATCH {records}/mtq/status?"));
        assert_eq!(patch[0], json!({ "op": "test", "path": "/metadata/uid", "value": "r" }));
        assert_eq!(patch[1]["value"], json!([{ "name": "rq" }]));
        assert_eq!(patch.as_array().map(Vec::len), Some(4));
    }
}
