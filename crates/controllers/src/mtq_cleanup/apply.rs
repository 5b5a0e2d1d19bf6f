//! Does the steps. Decides nothing.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use sluice_api::VirtualMachineMigrationResourceQuota;
use sluice_runtime::request::{objects, send};

use super::plan::{Change, Step};

const DEADLINE: Duration = Duration::from_secs(10);

/// Does one step; what is gone already is done.
pub(super) async fn carry_out(client: &Client, namespace: &str, step: &Step) -> kube::Result<()> {
    let quotas = || objects::<ResourceQuota>(Some(namespace));
    let params = PatchParams::default();
    let request = match step {
        Step::Say(_) => return Ok(()),
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
    let reply = send(client, request, DEADLINE).await?;
    if reply.code == 404 { Ok(()) } else { reply.check() }
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
