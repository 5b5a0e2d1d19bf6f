//! Reads the objects of managed-tenant-quota.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::Value;
use sluice_api::names;
use sluice_engine::Quantity;

use super::super::sights::LOCK_LABEL;
use super::plan::{Lock, Quota, Record};

/// Label with which an API server names a namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

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
    Some(labelled && webhook.name == name && path == Some(names::PATH_VALIDATE_PODS) && selected == namespace)
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

/// Until when a managed-tenant-quota that holds one of these leases is taken to be alive.
pub(super) fn alive_until(leases: &[Value]) -> Option<Timestamp> {
    let ends = leases.iter().filter_map(|lease| {
        let holder = lease.pointer("/spec/holderIdentity")?.as_str()?;
        let renewed: Timestamp = lease.pointer("/spec/renewTime")?.as_str()?.parse().ok()?;
        let seconds = lease.pointer("/spec/leaseDurationSeconds")?.as_i64()?;
        let end = renewed.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()?;
        (!holder.is_empty()).then_some(end)
    });
    ends.max()
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
