//! Reads what is left and does the steps. Decides nothing.

use http::Method;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::raw::{Call, JSON, JSON_PATCH, Reply, send};
use std::time::Duration;

use super::plan::{Change, Left, Lock, Step};
use super::read;

const DEADLINE: Duration = Duration::from_secs(5);
/// Name of the lease of managed-tenant-quota's controller, in whichever namespace it is installed.
const MTQ_LEASE: &str = "mtq-controller";

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Value>,
}

pub(super) struct Hands {
    pub(super) client: Client,
    pub(super) writes: ApiWrites,
}

impl Hands {
    async fn get(&self, path: String) -> kube::Result<Reply> {
        send(&self.client, Call { method: Method::GET, path, body: None }, DEADLINE).await
    }

    async fn list(&self, path: String) -> kube::Result<Vec<Value>> {
        Ok(self.get(path).await?.decode::<List>()?.items)
    }

    /// The API server's clock, and until when a managed-tenant-quota is alive.
    pub(super) async fn alive_until(&self) -> kube::Result<(Timestamp, Option<Timestamp>)> {
        let path = format!("/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3D{MTQ_LEASE}");
        let reply = self.get(path).await?;
        let now = reply.date.unwrap_or_else(Timestamp::now);
        Ok((now, read::alive_until(&reply.decode::<List>()?.items)))
    }

    /// What is left in a namespace besides its lock.
    pub(super) async fn left(&self, namespace: &str, lock: Option<Lock>) -> kube::Result<Left> {
        let found = self.get(format!("/api/v1/namespaces/{namespace}")).await?;
        let exists = found.code != 404;
        if exists {
            found.check()?;
        }
        let (records, quotas) = if exists {
            let (group, version, plural) = (names::MTQ_GROUP, names::MTQ_VERSION, names::VMMRQS);
            let records =
                self.list(format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")).await?;
            let quotas = self.list(format!("/api/v1/namespaces/{namespace}/resourcequotas")).await?;
            (records, quotas)
        } else {
            (Vec::new(), Vec::new())
        };
        Ok(Left {
            namespace: namespace.to_owned(),
            exists,
            lock,
            records: records.iter().filter_map(read::record).collect(),
            quotas: quotas.iter().map(read::quota).collect(),
        })
    }

    /// Does one step; what is gone already is done.
    pub(super) async fn carry_out(&self, namespace: &str, step: &Step) -> kube::Result<()> {
        let (resource, verb, call) = match step {
            Step::Say { .. } => return Ok(()),
            Step::LowerStatus(change) => {
                let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{}/status", change.quota);
                ("resourcequotas/status", "patch", patch(path, change_of("/status/hard", change)))
            }
            Step::RestoreSpec(change) => {
                let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{}", change.quota);
                ("resourcequotas", "patch", patch(path, change_of("/spec/hard", change)))
            }
            Step::DeleteLock(lock) => {
                let path = format!(
                    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{}",
                    lock.name
                );
                let body = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": lock.uid },
                });
                let body = Some((JSON, body.to_string().into_bytes()));
                ("validatingwebhookconfigurations", "delete", Call { method: Method::DELETE, path, body })
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
                (plural, "patch", patch(path, operations))
            }
        };
        let write = async {
            let reply = send(&self.client, call, DEADLINE).await?;
            if reply.code == 404 { Ok(()) } else { reply.check() }
        };
        self.writes.record(resource, verb, write).await
    }
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
