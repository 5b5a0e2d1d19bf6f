//! JSON patches of a quota's status. Their tests make each a compare-and-swap on exactly what it rests on.

use serde_json::{Value, json};
use sluice_engine::headroom::Raise;
use sluice_index::headroom::NativeRecord;

/// Raises a quota, if identity, spec and status are still as they were read. The new `status.hard` comes of the old one:
/// what kube-controller-manager has written meanwhile must not be undone.
pub(crate) fn raise(record: &NativeRecord, raise: &Raise) -> Value {
    let raw = record.raw();
    json!([
        { "op": "test", "path": "/metadata/uid", "value": record.uid.to_string() },
        { "op": "test", "path": "/spec/hard", "value": raw.spec_hard },
        { "op": "test", "path": "/status/hard", "value": raw.status_hard },
        { "op": "test", "path": "/status/used", "value": raw.used },
        { "op": "replace", "path": "/status/hard", "value": record.raised_texts(raise) },
    ])
}

/// As [`restore`], if nothing at all has changed since.
pub(crate) fn restore_unchanged(record: &NativeRecord) -> Value {
    let mut patch = restore(record);
    if let (Some(version), Some(operations)) = (record.version.precondition(), patch.as_array_mut()) {
        operations.insert(0, json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version }));
    }
    patch
}

/// Puts `status.hard` back, if identity and spec are still as they were read. Usage may have changed: it must have.
pub(crate) fn restore(record: &NativeRecord) -> Value {
    let raw = record.raw();
    let mut patch = vec![json!({ "op": "test", "path": "/metadata/uid", "value": record.uid.to_string() })];
    // An empty map is not stored at all.
    if !raw.spec_hard.is_empty() {
        patch.push(json!({ "op": "test", "path": "/spec/hard", "value": raw.spec_hard }));
    }
    patch.push(json!({ "op": "add", "path": "/status/hard", "value": record.restored_texts() }));
    Value::Array(patch)
}
