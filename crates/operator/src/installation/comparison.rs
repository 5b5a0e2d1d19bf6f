//! Whether an operand is as the operator has applied it, and what to apply if not.
//!
//! `managedFields` say what the operator owns and what one value is: a list or map that the API server replaces as a whole
//! is a leaf there, and the items of others in a list are not. What an owned leaf holds is compared, and what others have
//! added is left. So no schema is needed here, but the rendered objects state the defaults inside of such values.

use serde_json::{Map, Value};
use sluice_engine::Quantity;

use super::live::Live;
use crate::compare::{same_field, without};

/// Fields that identify an object have no field manager.
const IDENTITY: [&[&str]; 4] =
    [&["apiVersion"], &["kind"], &["metadata", "name"], &["metadata", "namespace"]];
/// Maps of amounts, which the API server writes in their canonical form.
const AMOUNTS: [&str; 3] = ["f:limits", "f:requests", "f:hard"];

/// Whether `live` is `wanted`, an object to apply, and nothing is owned that is wanted no more.
pub(super) fn is_as_wanted(wanted: &Value, live: &Live) -> bool {
    let wanted = IDENTITY.into_iter().fold(wanted.clone(), without);
    live.owned.as_object().is_some_and(|owned| holds("", &wanted, &live.content, owned, false))
}

/// `wanted` without the nulls that take nothing away from `live`.
pub(super) fn to_apply(wanted: &Value, live: Option<&Value>) -> Value {
    let Value::Object(fields) = wanted else { return wanted.clone() };
    let kept = fields.iter().filter_map(|(name, value)| {
        let live = live.and_then(|live| live.get(name));
        if value.is_null() {
            return live.filter(|live| !is_empty(live)).map(|_| (name.clone(), Value::Null));
        }
        let inner = to_apply(value, live);
        let had_nulls_only = inner != *value && inner.as_object().is_some_and(Map::is_empty);
        (!had_nulls_only).then(|| (name.clone(), inner))
    });
    Value::Object(kept.collect())
}

/// Who has taken a field that is `wanted` from the operator, the latest of several.
pub(super) fn taken_by<'l>(wanted: &Value, live: &'l Live) -> Option<&'l str> {
    // What the operator has never applied, it has not lost.
    live.owned.as_object()?;
    let takes = |fields: &Value| takes(wanted, Some(&live.owned), fields);
    live.others.iter().find(|(_, fields)| takes(fields)).map(|(name, _)| name.as_str())
}

/// `owned` is about `wanted` and `live`, a field or item of this `name`. `are_amounts`: its fields are.
fn holds(name: &str, wanted: &Value, live: &Value, owned: &Map<String, Value>, are_amounts: bool) -> bool {
    let mut parts = owned.iter().filter(|(key, _)| *key != ".").peekable();
    if parts.peek().is_none() {
        return same_field(name, wanted, live) || (are_amounts && is_same_amount(wanted, live));
    }
    let mut known = 0;
    let all_hold = parts.all(|(key, inner)| {
        known += 1;
        let Some(wanted) = part(wanted, key) else { return false };
        let live = part(live, key).unwrap_or(&Value::Null);
        let are_amounts = are_amounts || AMOUNTS.contains(&key.as_str());
        let name = key.strip_prefix("f:").unwrap_or_default();
        inner.as_object().is_some_and(|inner| holds(name, wanted, live, inner, are_amounts))
    });
    all_hold
        && match wanted {
            Value::Array(items) => items.len() == known,
            Value::Object(fields) => fields.iter().all(|(name, value)| {
                owned.contains_key(&format!("f:{name}"))
                    || (is_empty(value) && live.get(name).is_none_or(is_empty))
            }),
            _ => true,
        }
}

/// Nothing is set by it. An empty text may be the value of a label.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn takes(wanted: &Value, owned: Option<&Value>, theirs: &Value) -> bool {
    let mut parts = theirs.as_object().into_iter().flatten().filter(|(key, _)| *key != ".").peekable();
    if parts.peek().is_none() {
        return owned.is_none();
    }
    parts.any(|(key, theirs)| {
        part(wanted, key).is_some_and(|wanted| takes(wanted, owned.and_then(|owned| owned.get(key)), theirs))
    })
}

/// What a key of `managedFields` names: `f:` a field, `k:` the item with these values, `v:` the item that is this value.
fn part<'v>(of: &'v Value, key: &str) -> Option<&'v Value> {
    let (how, which) = key.split_once(':')?;
    match how {
        "f" => of.get(which),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(which).ok()?;
            let is_it = |item: &&Value| keys.iter().all(|(name, value)| item.get(name) == Some(value));
            of.as_array()?.iter().find(is_it)
        }
        "v" => {
            let value: Value = serde_json::from_str(which).ok()?;
            of.as_array()?.iter().find(|item| **item == value)
        }
        _ => None,
    }
}

fn is_same_amount(one: &Value, other: &Value) -> bool {
    let amount = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text).ok(),
        value => Quantity::parse(&value.to_string()).ok(),
    };
    amount(one).zip(amount(other)).is_some_and(|(one, other)| one == other)
}
