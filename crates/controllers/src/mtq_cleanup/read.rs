//! Reads the cluster, and what the objects of managed-tenant-quota say.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Client;
use kube::api::{GetParams, ListParams};
use serde::Deserialize;
use serde_json::Value;
use sluice_api::{Endpoint, VirtualMachineMigrationResourceQuota, names};
use sluice_engine::Quantity;
use sluice_runtime::request::{Reply, objects, send};

use super::Error;
use super::plan::{Alive, Left, Lock, Quota, Record, Seen};

const DEADLINE: Duration = Duration::from_secs(30);
/// Label with which an API server names a namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Label of the locks, and its value.
const LOCK_LABEL: &str = "mtq-lock-server";
/// Name of the lease of managed-tenant-quota's controller, in whichever namespace it is installed.
const MTQ_LEASE: &str = "mtq-controller";

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

/// Reads everything. The lease comes last: who holds it then may have made what was read before.
pub(super) async fn seen(client: &Client) -> Result<Seen, Error> {
    let read = async |what, request| {
        let reply = send(client, request, DEADLINE).await;
        // A kind that does not exist has no objects.
        let reply = reply
            .and_then(|reply| if reply.code == 404 { Ok(None) } else { reply.check().map(|()| Some(reply)) });
        reply.map_err(|source| Error::Read { what, source })
    };
    let mut found: BTreeMap<String, (Option<Lock>, Vec<Record>)> = BTreeMap::new();
    let all = ListParams::default();
    let what = "the locks (validatingwebhookconfigurations)";
    let locked = all.clone().labels(&format!("{LOCK_LABEL}={LOCK_LABEL}"));
    let locks = read(what, objects::<ValidatingWebhookConfiguration>(None).list(&locked)).await?;
    for object in items::<ValidatingWebhookConfiguration>(what, locks.as_ref())? {
        if let Some(namespace) = object.metadata.name.as_deref().and_then(locked_namespace) {
            found.entry(namespace.to_owned()).or_default().0 = Some(lock(&object));
        }
    }
    let records =
        read(names::VMMRQS, objects::<VirtualMachineMigrationResourceQuota>(None).list(&all)).await?;
    for object in items::<Value>(names::VMMRQS, records.as_ref())? {
        if let Some(record) = record(&object) {
            found.entry(text_at(&object, "/metadata/namespace")).or_default().1.push(record);
        }
    }
    let mut left = Vec::new();
    for (namespace, (lock, records)) in found {
        let named = objects::<Namespace>(None).get(&namespace, &GetParams::default());
        let exists = read("a namespace", named).await?.is_some();
        let quotas = read("resourcequotas", objects::<ResourceQuota>(Some(&namespace)).list(&all)).await?;
        let quotas = items::<Value>("resourcequotas", quotas.as_ref())?.iter().map(quota).collect();
        left.push(Left { namespace, exists, lock, records, quotas });
    }
    let named = all.fields(&format!("metadata.name={MTQ_LEASE}"));
    let leases = read("leases", objects::<Lease>(None).list(&named)).await?;
    let now = leases.as_ref().and_then(|reply| reply.date).unwrap_or_else(Timestamp::now);
    Ok(Seen { now, holder: holder(&items("leases", leases.as_ref())?), left })
}

fn items<T: for<'a> Deserialize<'a>>(what: &'static str, reply: Option<&Reply>) -> Result<Vec<T>, Error> {
    let Some(reply) = reply else { return Ok(Vec::new()) };
    let list = reply.decode::<List<T>>().map_err(|source| Error::Read { what, source })?;
    Ok(list.items)
}

/// The namespace that a lock of this name is for.
pub(super) fn locked_namespace(name: &str) -> Option<&str> {
    name.strip_prefix("lock.")?.strip_suffix(".com").filter(|namespace| !namespace.is_empty())
}

/// What there is of a lock.
pub(super) fn lock(object: &ValidatingWebhookConfiguration) -> Lock {
    let meta = &object.metadata;
    Lock {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        genuine: is_genuine(object).unwrap_or(false),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
    }
}

/// Whether it has the name, the label, and the one webhook that managed-tenant-quota gives it.
fn is_genuine(object: &ValidatingWebhookConfiguration) -> Option<bool> {
    let name = object.metadata.name.as_deref()?;
    let namespace = locked_namespace(name)?;
    let labelled = object.metadata.labels.as_ref()?.get(LOCK_LABEL).is_some_and(|value| value == LOCK_LABEL);
    let [webhook] = object.webhooks.as_deref()? else { return None };
    let path = webhook.client_config.service.as_ref()?.path.as_deref();
    let selected = webhook.namespace_selector.as_ref()?.match_labels.as_ref()?.get(NAMESPACE_NAME)?;
    Some(labelled && webhook.name == name && path == Some(Endpoint::MtqLock.path()) && selected == namespace)
}

/// A `VirtualMachineMigrationResourceQuota`; `None` if it remembers nothing.
pub(super) fn record(object: &Value) -> Option<Record> {
    let text = object.pointer("/status/originalBlockingResourceQuotas")?;
    let originals = text.as_array().filter(|list| !list.is_empty())?;
    let originals = originals.iter().filter_map(|original| {
        Some((original.get("name")?.as_str()?.to_owned(), amounts(original.pointer("/spec/hard"))))
    });
    Some(Record {
        name: text_at(object, "/metadata/name"),
        uid: text_at(object, "/metadata/uid"),
        text: text.clone(),
        originals: originals.collect(),
        additional: amounts(object.pointer("/status/additionalMigrationResources")),
    })
}

/// A ResourceQuota.
pub(super) fn quota(object: &Value) -> Quota {
    Quota {
        name: text_at(object, "/metadata/name"),
        uid: text_at(object, "/metadata/uid"),
        spec: amounts(object.pointer("/spec/hard")),
        status: amounts(object.pointer("/status/hard")),
    }
}

/// Who holds one of these leases, for the longest time.
pub(super) fn holder(leases: &[Value]) -> Option<Alive> {
    let held = leases.iter().filter_map(|lease| {
        let renewed: Timestamp = lease.pointer("/spec/renewTime")?.as_str()?.parse().ok()?;
        let seconds = lease.pointer("/spec/leaseDurationSeconds")?.as_i64()?;
        Some(Alive {
            lease: format!("{}/{}", text_at(lease, "/metadata/namespace"), text_at(lease, "/metadata/name")),
            holder: text_at(lease, "/spec/holderIdentity"),
            until: renewed.checked_add(SignedDuration::from_secs(seconds)).ok()?,
        })
    });
    held.filter(|alive| !alive.holder.is_empty()).max_by_key(|alive| alive.until)
}

fn text_at(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn amounts(map: Option<&Value>) -> BTreeMap<String, Quantity> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    let read = entries.filter_map(|(key, amount)| {
        let text = amount.as_str().map(str::to_owned).or_else(|| amount.as_i64().map(|n| n.to_string()))?;
        Some((key.clone(), Quantity::parse(&text).ok()?))
    });
    read.collect()
}
