//! Whether one schema accepts all that another one accepts, and keeps its fields.

use serde_json::{Map, Value};

/// What says nothing about what is accepted.
const WORDS: [&str; 5] = ["default", "description", "example", "externalDocs", "title"];
/// What is looked into.
const PARTS: [&str; 3] = ["properties", "items", "additionalProperties"];
/// What lets more in.
const WIDENS: [&str; 3] =
    ["nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"];
/// What says how lists and maps are merged: another way would make other objects of the same writes.
const KINDS: [&str; 6] = [
    "type",
    "format",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];

/// Reports at `path` what `now` accepts no more.
pub(super) fn compare(path: &str, last: &Value, now: &Value, lost: &mut Vec<String>) {
    let (Some(last), Some(now)) = (last.as_object(), now.as_object()) else {
        // `additionalProperties` may be true or false.
        if last != now && *now != Value::Bool(true) {
            lost.push(format!("{path} is another schema"));
        }
        return;
    };
    for key in last.keys().chain(now.keys().filter(|key| !last.contains_key(*key))) {
        let (before, after) = (last.get(key), now.get(key));
        let skipped = [&WORDS[..], &PARTS[..]].concat().contains(&key.as_str());
        if !skipped && before != after && !is_wider(key, before, after) {
            lost.push(format!("{path}: {key} was {}, and is {}", shown(before), shown(after)));
        }
    }
    for (name, before) in fields(last) {
        match fields(now).find(|(other, _)| *other == name) {
            Some((_, after)) => compare(&format!("{path}.{name}"), before, after, lost),
            None => lost.push(format!("{path}.{name} is gone")),
        }
    }
    for (part, sign) in [("items", "[]"), ("additionalProperties", ".*")] {
        match (last.get(part), now.get(part)) {
            (Some(before), Some(after)) => compare(&format!("{path}{sign}"), before, after, lost),
            (Some(_), None) => lost.push(format!("{path}{sign} is gone")),
            (None, _) => {}
        }
    }
}

fn fields(schema: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

/// Whether a rule that is another one accepts all that it accepted before. What is not known narrows.
fn is_wider(key: &str, before: Option<&Value>, after: Option<&Value>) -> bool {
    if WIDENS.contains(&key) {
        return after == Some(&Value::Bool(true));
    }
    if KINDS.contains(&key) {
        return false;
    }
    let Some(after) = after else { return true };
    let Some(before) = before else { return false };
    let number = |value: &Value| value.as_f64();
    match key {
        "enum" => contains(after, before),
        "required" | "allOf" => contains(before, after),
        "x-kubernetes-validations" => contains(&rules(before), &rules(after)),
        "maximum" | "maxLength" | "maxItems" | "maxProperties" => number(after) >= number(before),
        "minimum" | "minLength" | "minItems" | "minProperties" => number(after) <= number(before),
        _ => false,
    }
}

/// The expressions without what they say to a user.
fn rules(validations: &Value) -> Value {
    let all = validations.as_array().into_iter().flatten();
    all.map(|each| each.get("rule").cloned().unwrap_or_default()).collect()
}

/// Whether `all` has every item of `some`.
fn contains(all: &Value, some: &Value) -> bool {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let all = items(all);
    items(some).iter().all(|item| all.contains(item))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::compare;

    fn lost(last: &Value, now: &Value) -> Vec<String> {
        let mut lost = Vec::new();
        compare("x", last, now, &mut lost);
        lost
    }

    #[test]
    fn what_accepts_more_is_an_addition() {
        for (last, now) in [
            (json!({ "type": "string" }), json!({ "type": "string", "description": "new" })),
            (json!({ "enum": ["a"] }), json!({ "enum": ["b", "a"] })),
            (json!({ "required": ["a", "b"] }), json!({ "required": ["a"] })),
            (json!({ "maxLength": 3, "minimum": 1 }), json!({ "maxLength": 4, "minimum": 0 })),
            (json!({ "pattern": "a" }), json!({})),
            (json!({ "nullable": false }), json!({ "nullable": true })),
            (json!({ "additionalProperties": false }), json!({ "additionalProperties": true })),
            (json!({ "x-kubernetes-validations": [{ "rule": "r" }] }), json!({})),
            (
                json!({ "x-kubernetes-validations": [{ "rule": "r", "message": "m" }] }),
                json!({ "x-kubernetes-validations": [{ "rule": "r", "message": "n" }] }),
            ),
            (
                json!({ "properties": { "a": { "type": "object" } } }),
                json!({ "properties": { "a": { "type": "object", "properties": { "b": { "required": ["c"] } } } } }),
            ),
        ] {
            assert_eq!(lost(&last, &now), Vec::<String>::new(), "{last} {now}");
        }
    }

    #[test]
    fn what_accepts_less_is_told_with_its_place() {
        for (last, now, expected) in [
            (
                json!({ "type": "string" }),
                json!({ "type": "integer" }),
                "x: type was \"string\", and is \"integer\"",
            ),
            (
                json!({ "enum": ["a", "b"] }),
                json!({ "enum": ["a"] }),
                "x: enum was [\"a\",\"b\"], and is [\"a\"]",
            ),
            (json!({}), json!({ "required": ["a"] }), "x: required was nothing, and is [\"a\"]"),
            (json!({ "maxItems": 64 }), json!({ "maxItems": 63 }), "x: maxItems was 64, and is 63"),
            (json!({}), json!({ "pattern": "a" }), "x: pattern was nothing, and is \"a\""),
            (
                json!({}),
                json!({ "x-kubernetes-validations": [{ "rule": "r" }] }),
                "x: x-kubernetes-validations was nothing, and is [{\"rule\":\"r\"}]",
            ),
            (
                json!({ "properties": { "a": { "items": { "properties": { "b": {} } } } } }),
                json!({ "properties": { "a": { "items": { "properties": {} } } } }),
                "x.a[].b is gone",
            ),
            (
                json!({ "additionalProperties": { "type": "string" } }),
                json!({ "additionalProperties": { "type": "integer" } }),
                "x.*: type was \"string\", and is \"integer\"",
            ),
            (
                json!({ "x-kubernetes-preserve-unknown-fields": true }),
                json!({}),
                "x: x-kubernetes-preserve-unknown-fields was true, and is nothing",
            ),
        ] {
            assert_eq!(lost(&last, &now), [expected], "{last} {now}");
        }
    }
}
