//! What rendered objects have in common: fields that are set, labels and `metadata`.

use serde_json::{Value, json};
use sluice_api::names;

use crate::options::InstallOptions;

/// Sets a field of `object`, which is one.
pub(crate) fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

/// Sets a field of `object[part]`.
pub(crate) fn set_in(object: &mut Value, part: &str, key: &str, value: Value) {
    if let Some(part) = object.get_mut(part) {
        set(part, key, value);
    }
}

/// Labels of an object, with the name of the component it belongs to.
pub(crate) fn labels(component: Option<&str>) -> Value {
    let mut labels = json!({
        "app.kubernetes.io/name": names::APP,
        "app.kubernetes.io/part-of": names::APP,
    });
    if let Some(component) = component {
        set(&mut labels, "app.kubernetes.io/component", json!(component));
    }
    labels
}

/// The objects with the labels that all get; an object's own labels win.
pub(crate) fn labelled(options: &InstallOptions, mut objects: Vec<Value>) -> Vec<Value> {
    let common = &options.common_labels;
    for labels in
        objects.iter_mut().filter_map(|object| object.pointer_mut("/metadata/labels")?.as_object_mut())
    {
        for (key, value) in common {
            labels.entry(key.as_str()).or_insert_with(|| json!(value));
        }
    }
    objects
}

/// `metadata` of an object in the install namespace.
pub(crate) fn metadata(options: &InstallOptions, name: &str) -> Value {
    json!({ "name": name, "namespace": options.namespace, "labels": labels(Some(name)) })
}

pub(crate) fn cluster_metadata(name: &str) -> Value {
    json!({ "name": name, "labels": labels(Some(name)) })
}
