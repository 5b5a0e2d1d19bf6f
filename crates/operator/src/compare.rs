//! Whether an object is as it should be, however the API server writes it down.

use serde_json::{Map, Value};

/// Maps in which an empty text says something: a label without a value.
const LABELS: [&str; 3] = ["matchLabels", "nodeSelector", "selector"];

/// Equal but for fields that say nothing: null, or an empty text, list or object.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let fields_of = |object: &Map<String, Value>, than: &Map<String, Value>| {
                object.iter().all(|(key, value)| match than.get(key) {
                    Some(other) => same_field(key, value, other),
                    None => is_nothing(key, value),
                })
            };
            fields_of(one, other) && fields_of(other, one)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (one, other) => one == other || (says_nothing(one) && says_nothing(other)),
    }
}

/// The same of two values of a field.
pub(crate) fn same_field(name: &str, one: &Value, other: &Value) -> bool {
    if !LABELS.contains(&name) {
        return same(one, other);
    }
    one == other || (is_nothing(name, one) && is_nothing(name, other))
}

/// Whether the field `key` says nothing.
fn is_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Object(labels) if LABELS.contains(&key) => labels.is_empty(),
        value => says_nothing(value),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.iter().all(|(key, value)| is_nothing(key, value)),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The same without one member, given by its path.
pub(crate) fn without(mut value: Value, path: &[&str]) -> Value {
    if let [parents @ .., last] = path {
        let mut at = Some(&mut value);
        for name in parents {
            at = at.and_then(|value| value.get_mut(*name));
        }
        if let Some(fields) = at.and_then(Value::as_object_mut) {
            fields.remove(*last);
        }
    }
    value
}
