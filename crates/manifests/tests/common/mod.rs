//! What the tests of rendered objects share.

use serde_json::Value;

/// The objects of this kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The texts of a list; none of what is no list.
#[allow(dead_code, reason = "not each file of tests reads lists")]
pub fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
