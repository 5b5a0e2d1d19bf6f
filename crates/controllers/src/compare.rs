//! Whether an object is as it should be, however the API server writes it down.

use serde_json::{Map, Value};

/// Of a selector.
const LABELS: &str = "matchLabels";

/// Equal but for fields that say nothing: null, or an empty text, list or object.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let fields_of = |object: &Map<String, Value>, than: &Map<String, Value>| {
                object.iter().all(|(key, value)| match than.get(key) {
                    Some(other) if key == LABELS => same_labels(value, other),
                    Some(other) => same(value, other),
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

/// Here an empty text says something: a label without a value.
fn same_labels(one: &Value, other: &Value) -> bool {
    one == other || (is_nothing(LABELS, one) && is_nothing(LABELS, other))
}

/// Whether the field `key` says nothing.
fn is_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Object(labels) if key == LABELS => labels.is_empty(),
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
