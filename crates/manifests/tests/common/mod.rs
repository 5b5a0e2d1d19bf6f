//! What the tests of rendered objects share.

use serde_json::Value;

/// The objects of this kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}
