//! Tells whether a mirror is as it should be, without keeping it: there may be ten thousand.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};
use sluice_api::names;
use sluice_index::AacrqWire;

/// What a mirror says, by two hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    /// Whose it is, the specification, and what is said of namespaces.
    pub own: u64,
    /// The rest of the status.
    pub total: u64,
}

impl Digest {
    pub(super) fn of(mirror: &AacrqWire) -> Self {
        let meta = &mirror.metadata;
        let label = meta.labels.as_ref().and_then(|labels| labels.get(names::MANAGED_LABEL));
        let owners = json!(meta.owner_references);
        let mut total = mirror.status.clone();
        let mut namespaces = Value::Null;
        if let Some(status) = total.as_object_mut() {
            namespaces = status.remove("namespaces").unwrap_or_default();
            status.remove("totalAsOf");
        }
        Self { own: hash(&json!([label, owners, mirror.spec, namespaces])), total: hash(&total) }
    }
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}

/// The order of an object's fields does not matter.
fn feed(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            fields.len().hash(hasher);
            for (key, value) in fields {
                key.hash(hasher);
                feed(value, hasher);
            }
        }
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| feed(item, hasher));
        }
        other => other.to_string().hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;

    fn digest(change: impl Fn(&mut Value)) -> Digest {
        let mut mirror = json!({
            "metadata": { "name": "q", "namespace": "a", "labels": { names::MANAGED_LABEL: "true" } },
            "spec": { "quota": { "hard": { "pods": "1" } }, "selector": {} },
            "status": {
                "total": { "hard": { "pods": "1" }, "used": { "pods": "0" } },
                "totalAsOf": "2026-01-01T00:00:00Z",
                "namespaces": [{ "namespace": "a", "status": { "used": { "pods": "0" } } }],
            },
        });
        change(&mut mirror);
        Digest::of(&serde_json::from_value(mirror).unwrap())
    }

    #[test]
    fn own_part_and_total_are_told_apart_and_the_time_does_not_matter() {
        let before = digest(|_| {});
        let late = digest(|mirror| mirror["status"]["totalAsOf"] = json!("2026-01-01T00:00:09Z"));
        assert_eq!(late, before);
        let total = digest(|mirror| mirror["status"]["total"]["used"]["pods"] = json!("1"));
        assert!(total.own == before.own && total.total != before.total);
        let changes: [fn(&mut Value); 4] = [
            |mirror| mirror["status"]["namespaces"][0]["status"]["used"]["pods"] = json!("1"),
            |mirror| mirror["spec"]["quota"]["hard"]["pods"] = json!("2"),
            |mirror| mirror["metadata"]["labels"] = json!({}),
            |mirror| {
                mirror["metadata"]["ownerReferences"] =
                    json!([{ "apiVersion": "v1", "kind": "K", "name": "n", "uid": "u" }]);
            },
        ];
        for (index, change) in changes.iter().enumerate() {
            let other = digest(change);
            assert!(other.own != before.own && other.total == before.total, "{index}");
        }
    }
}
