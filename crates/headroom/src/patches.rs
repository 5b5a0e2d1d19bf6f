//! Merge patches of a quota's status. Each holds for one version of the quota: it is a compare-and-swap.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_engine::headroom::{MARK, NUDGE_KEY, RaisedKey, Restore};
use sluice_index::ResourceQuotaRecord;

/// Sets these keys, and the mark: of a raise that is there already the mark alone.
pub(crate) fn raise(record: &ResourceQuotaRecord, keys: &[RaisedKey], mark: i64) -> Value {
    let keys = keys.iter().map(|raised| (raised.key.to_string(), json!(raised.to.to_string())));
    let mut hard: Map<String, Value> = keys.collect();
    hard.insert(MARK.to_owned(), json!(mark.to_string()));
    patch(record, hard, json!({ MARK: mark.to_string() }))
}

/// Changes a key that nothing looks at.
pub(crate) fn nudge(record: &ResourceQuotaRecord, count: u32) -> Value {
    patch(record, Map::new(), json!({ NUDGE_KEY: count.to_string() }))
}

/// Ends a raise. Amounts are written as `spec.hard` has them.
#[must_use]
pub fn restore(record: &ResourceQuotaRecord, restore: &Restore) -> Value {
    let texts: BTreeMap<String, String> = record.raw().spec_hard;
    let keys = restore.keys.keys().filter_map(|key| Some((key.to_string(), json!(texts.get(&**key)?))));
    let mut hard: Map<String, Value> = keys.collect();
    if !restore.unmark {
        return patch(record, hard, json!({}));
    }
    hard.insert(MARK.to_owned(), Value::Null);
    patch(record, hard, json!({ MARK: null }))
}

fn patch(record: &ResourceQuotaRecord, hard: Map<String, Value>, used: Value) -> Value {
    json!({
        "metadata": { "uid": record.uid.to_string(), "resourceVersion": record.version.precondition() },
        "status": { "hard": hard, "used": used },
    })
}
