//! What AKS adds to the namespace selectors of all webhooks, so that they leave its own namespaces alone. Its admissions
//! enforcer puts it back whenever it is taken away, so it stays where it is found.
//!
//! A selector is one value to the API server, so both are merged here. Only the requirements that AKS is known to add are
//! kept: any other that narrows what is gated is removed.

use serde_json::{Value, json};

use crate::compare::same;

const EXPRESSIONS: &str = "matchExpressions";

/// The requirements (<https://github.com/Azure/AKS/issues/4002>).
fn requirements() -> [Value; 2] {
    [("control-plane", "true"), ("kubernetes.azure.com/managedby", "aks")]
        .map(|(key, value)| json!({ "key": key, "operator": "NotIn", "values": [value] }))
}

/// The selector `wanted`, with what AKS has added to the one that is `live`.
pub(super) fn with_added(wanted: &Value, live: &Value) -> Value {
    let added = added(wanted, live);
    let mut merged = wanted.clone();
    if added.is_empty() {
        return merged;
    }
    if let Some(fields) = merged.as_object_mut() {
        let all = expressions(wanted).iter().chain(&added).cloned().collect();
        fields.insert(EXPRESSIONS.to_owned(), Value::Array(all));
    }
    merged
}

/// The selector `live` without what AKS has added to `wanted`, wherever in the list.
pub(super) fn without_added(wanted: &Value, live: &Value) -> Value {
    let added = added(wanted, live);
    let mut rest = live.clone();
    if let Some(list) = rest.get_mut(EXPRESSIONS).and_then(Value::as_array_mut) {
        list.retain(|each| !added.contains(each));
    }
    rest
}

/// Whether the entry is about the namespaces of `selector`, but for those that AKS takes out.
pub(super) fn is_selected(entry: &Value, selector: &Value) -> bool {
    let live = entry.pointer("/namespaceSelector").unwrap_or(&Value::Null);
    same(&without_added(selector, live), selector)
}

/// What `live` has of AKS's requirements and `wanted` does not ask for itself.
fn added(wanted: &Value, live: &Value) -> Vec<Value> {
    let (wanted, known) = (expressions(wanted), requirements());
    let is_added = |each: &&Value| known.contains(*each) && !wanted.contains(*each);
    expressions(live).iter().filter(is_added).cloned().collect()
}

fn expressions(selector: &Value) -> &[Value] {
    selector.get(EXPRESSIONS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
