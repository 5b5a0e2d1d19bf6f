//! The managed quota as it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource as _;
use serde_json::{Map, Value, json};
use sluice_api::{ApplicationAwareResourceQuota, names};
use sluice_engine::{Quantity, Uid};
use sluice_index::{Key, ResourceQuotaRecord};

use super::arqs::{Arq, Limits};

/// Whether the ResourceQuota belongs to the quota: the quota of this name is its controller, or it has no controller and has
/// the label.
pub(super) fn is_ours(quota: &ResourceQuotaRecord, arq: &str) -> bool {
    match &quota.owner {
        Some(owner) => {
            let group = owner.api_version.split('/').next();
            group == Some(names::GROUP)
                && *owner.kind == *ApplicationAwareResourceQuota::kind(&())
                && *owner.name == *arq
        }
        None => quota.labels.get(names::MANAGED_LABEL).is_some(),
    }
}

/// Whether the quota with this uid is its controller, and it has the label.
pub(super) fn is_marked(quota: &ResourceQuotaRecord, uid: &Uid) -> bool {
    quota.labels.get(names::MANAGED_LABEL) == Some("true")
        && quota.owner.as_ref().is_some_and(|owner| {
            owner.uid == *uid && owner.blocks && *owner.api_version == *names::API_VERSION
        })
}

/// The whole object.
pub(super) fn object(key: &Key, arq: &Arq, limits: &Limits) -> Value {
    let mut spec = json!({ "hard": texts(&limits.hard) });
    if !limits.listed.is_empty() {
        put(&mut spec, "scopes", json!(limits.listed));
    }
    if !limits.selected.is_empty() {
        let requirements = limits.selected.iter().map(|text| {
            let mut requirement = json!({ "scopeName": text.scope_name, "operator": text.operator });
            if !text.values.is_empty() {
                put(&mut requirement, "values", json!(text.values));
            }
            requirement
        });
        put(&mut spec, "scopeSelector", json!({ "matchExpressions": requirements.collect::<Vec<_>>() }));
    }
    let mut metadata = marks(key, arq);
    put(&mut metadata, "name", json!(names::managed_quota(&key.name)));
    put(&mut metadata, "namespace", json!(*key.namespace));
    json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec })
}

/// A merge patch that makes the limits and the marks of `quota` what they should be. Scopes stay.
pub(super) fn patch(key: &Key, arq: &Arq, limits: &Limits, quota: &ResourceQuotaRecord) -> Value {
    let mut hard: Map<String, Value> =
        quota.raw().spec_hard.into_keys().map(|other| (other, Value::Null)).collect();
    hard.extend(texts(&limits.hard));
    let mut metadata = marks(key, arq);
    // Refused if there is another object of that name now.
    put(&mut metadata, "uid", json!(quota.uid.to_string()));
    json!({ "metadata": metadata, "spec": { "hard": hard } })
}

fn marks(key: &Key, arq: &Arq) -> Value {
    json!({
        "labels": { names::MANAGED_LABEL: "true" },
        "ownerReferences": [{
            "apiVersion": names::API_VERSION,
            "kind": ApplicationAwareResourceQuota::kind(&()),
            "name": *key.name,
            "uid": arq.uid.to_string(),
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

fn texts(hard: &BTreeMap<Arc<str>, Quantity>) -> Map<String, Value> {
    hard.iter().map(|(key, amount)| (key.to_string(), json!(amount.to_string()))).collect()
}

fn put(object: &mut Value, field: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(field.to_owned(), value);
    }
}
