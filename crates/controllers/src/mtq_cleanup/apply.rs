//! Does the steps. Decides nothing.

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_runtime::raw::{Call, JSON, JSON_PATCH, send};

use super::plan::{Change, Step};

const DEADLINE: Duration = Duration::from_secs(10);

/// Does one step; what is gone already is done.
pub(super) async fn carry_out(client: &Client, namespace: &str, step: &Step) -> kube::Result<()> {
    let call = match step {
        Step::Say(_) => return Ok(()),
        Step::LowerStatus(change) => {
            let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{}/status", change.quota);
            patch(path, change_of("/status/hard", change))
        }
        Step::RestoreSpec(change) => {
            let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{}", change.quota);
            patch(path, change_of("/spec/hard", change))
        }
        Step::DeleteLock(lock) => {
            let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
            let body = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": lock.uid },
            });
            let body = Some((JSON, body.to_string().into_bytes()));
            Call { method: Method::DELETE, path: format!("{hooks}/{}", lock.name), body }
        }
        Step::ClearRecord { name, uid, text } => {
            let (group, version, plural) = (names::MTQ_GROUP, names::MTQ_VERSION, names::VMMRQS);
            let path = format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}/status");
            let originals = "/status/originalBlockingResourceQuotas";
            let operations = json!([
                { "op": "test", "path": "/metadata/uid", "value": uid },
                { "op": "test", "path": originals, "value": text },
                { "op": "remove", "path": originals },
                { "op": "add", "path": "/status/migrationsToBlockingResourceQuotas", "value": {} },
            ]);
            patch(path, operations)
        }
    };
    let reply = send(client, call, DEADLINE).await?;
    if reply.code == 404 { Ok(()) } else { reply.check() }
}

fn patch(path: String, operations: Value) -> Call {
    Call { method: Method::PATCH, path, body: Some((JSON_PATCH, operations.to_string().into_bytes())) }
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
