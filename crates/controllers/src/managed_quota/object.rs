//! The managed quota as it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_api::names;
use sluice_engine::Quantity;
use sluice_index::Key;

use super::existing::Existing;
use super::kind::ManagedKind;
use super::wishes::{Limits, Wish};

/// The whole object.
pub(super) fn object(kind: ManagedKind, key: &Key, wish: &Wish, limits: &Limits) -> Value {
    let mut quota = json!({ "hard": texts(&limits.hard) });
    if !limits.listed.is_empty() {
        put(&mut quota, "scopes", json!(limits.listed));
    }
    if !limits.selected.is_empty() {
        let requirements = limits.selected.iter().map(|text| {
            let mut requirement = json!({ "scopeName": text.scope_name, "operator": text.operator });
            if !text.values.is_empty() {
                put(&mut requirement, "values", json!(text.values));
            }
            requirement
        });
        put(&mut quota, "scopeSelector", json!({ "matchExpressions": requirements.collect::<Vec<_>>() }));
    }
    let mut metadata = marks(kind, key, wish);
    put(&mut metadata, "name", json!(kind.name(key)));
    if !key.namespace.is_empty() {
        put(&mut metadata, "namespace", json!(*key.namespace));
    }
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind(),
        "metadata": metadata,
        "spec": kind.spec(quota, &limits.selector),
    })
}

/// A merge patch that makes the limits, the selector and the marks of the `existing` one what they should be. Scopes stay.
pub(super) fn patch(
    kind: ManagedKind,
    key: &Key,
    wish: &Wish,
    limits: &Limits,
    existing: &Existing,
) -> Value {
    let mut hard: Map<String, Value> =
        existing.quota.raw().spec_hard.into_keys().map(|other| (other, Value::Null)).collect();
    hard.extend(texts(&limits.hard));
    let mut metadata = marks(kind, key, wish);
    // Refused if there is another object of that name now.
    put(&mut metadata, "uid", json!(existing.quota.uid.to_string()));
    let spec = kind.spec(json!({ "hard": hard }), &difference(existing.selector(), &limits.selector));
    json!({ "metadata": metadata, "spec": spec })
}

/// The merge patch that makes `wanted` of `now`.
fn difference(now: &Value, wanted: &Value) -> Value {
    let (Value::Object(now), Value::Object(wanted)) = (now, wanted) else { return wanted.clone() };
    let gone = now.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let of = |(key, value): (&String, &Value)| {
        (key.clone(), now.get(key).map_or_else(|| value.clone(), |now| difference(now, value)))
    };
    gone.chain(wanted.iter().map(of)).collect()
}

fn marks(kind: ManagedKind, key: &Key, wish: &Wish) -> Value {
    json!({
        "labels": { names::MANAGED_LABEL: "true" },
        "ownerReferences": [{
            "apiVersion": names::API_VERSION,
            "kind": kind.owner(),
            "name": *key.name,
            "uid": wish.uid.to_string(),
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
