//! AAQ CREATE and UPDATE: there is one at most, and its selector is one that the API server takes.
//!
//! Upstream refuses every creation and registers its webhook only while an AAQ exists, which is why there a deleted AAQ
//! cannot be created again at once. Sluice's webhook is always registered and knows whether there is one. A selector that
//! the API server refuses in what gates pods would be kept, and nothing would follow it: it is refused here.

use serde::Deserialize;
use serde_json::Value;
use sluice_index::{AaqSpecWire, read_selector};

use super::quota_rules::aggregate;
use crate::review::{Metadata, Operation, Review, Verdict, nullable, unreadable};
use crate::settings::{AaqPresence, Settings};

const VALID: &str = "AAQ request is valid";
const SELECTOR: &str = "spec.namespaceSelector";
const EVERY_NAMESPACE: &str = "spec.namespaceSelector: {} gates every namespace but those that --exempt-namespaces names, \
     and refuses pods with spec.nodeName there: leave out the namespaces of further storage and network plugins by NotIn on \
     the label kubernetes.io/metadata.name";

/// Decides on the creation or the change of an `AAQ`.
pub fn aaq_validate(review: &Review<'_>, settings: &Settings) -> Verdict {
    let checked = match review.operation {
        Operation::Create => single(settings).and_then(|()| check(review)),
        Operation::Update => check(review),
        _ => Ok(Vec::new()),
    };
    match checked {
        Ok(warnings) => Verdict { warnings, ..Verdict::allow(VALID) },
        Err(refused) => refused,
    }
}

fn single(settings: &Settings) -> Result<(), Verdict> {
    match settings.aaq {
        AaqPresence::Absent => Ok(()),
        AaqPresence::Present { .. } => Err(Verdict::deny("only a single AAQ CR instance is allowed")),
        AaqPresence::Unknown => Err(Verdict::refuse(
            503,
            "it is not known yet whether an AAQ CR instance exists: try again, and if this stays, look at the \
             webhook's log and at its permission to list aaqs",
        )),
    }
}

/// The warnings about a valid object.
fn check(review: &Review<'_>) -> Result<Vec<String>, Verdict> {
    let new = review.read_object::<AaqView>("an AAQ")?;
    let old = match review.operation {
        Operation::Update => review.read_old_object("an AAQ")?,
        _ => AaqView::default(),
    };
    // An object that is wrong by today's rules can still be labelled, and loses its finalizers.
    if new.metadata.deletion_timestamp.is_some()
        || (review.operation == Operation::Update && new.spec == old.spec)
    {
        return Ok(Vec::new());
    }
    let selector = new.spec.get("namespaceSelector").filter(|selector| !selector.is_null());
    let mut warnings = Vec::new();
    if let Some(selector) = selector.filter(|selector| Some(*selector) != old.spec.get("namespaceSelector")) {
        warnings.extend(check_selector(selector)?);
    }
    warnings.extend(not_in_force(&new.spec));
    Ok(warnings)
}

fn check_selector(selector: &Value) -> Result<Option<String>, Verdict> {
    let spec = serde_json::json!({ "namespaceSelector": selector });
    let spec: AaqSpecWire =
        serde_json::from_value(spec).map_err(|error| unreadable(SELECTOR, "an AAQ", &error))?;
    let read = read_selector(SELECTOR, spec.namespace_selector.unwrap_or_default());
    let read =
        read.map_err(|errors| Verdict::deny(aggregate(errors.iter().map(ToString::to_string).collect())))?;
    Ok(read.selects_all().then(|| EVERY_NAMESPACE.to_owned()))
}

/// Fields that nothing reads yet, and what is so instead.
const NOT_IN_FORCE: [(&str, &str); 4] = [
    ("certConfig", "certificates keep the lifetimes they have"),
    ("configuration.sidecarEvaluators", "pods are counted as Kubernetes counts them"),
    ("tlsSecurityProfile", "TLS 1.2 and 1.3 are served"),
    ("workload", "nothing runs as a workload"),
];

/// A warning for each field that is set and not in force.
fn not_in_force(spec: &Value) -> Vec<String> {
    let set = NOT_IN_FORCE.iter().filter(|(field, _)| {
        let value = field.split('.').try_fold(spec, |value, name| value.get(name));
        value.is_some_and(|value| !says_what_is_so(value))
    });
    set.map(|(field, instead)| format!("spec.{field} is not in force in this version: {instead}")).collect()
}

/// Whether the value of such a field asks for nothing else than what is so without it.
fn says_what_is_so(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(wanted) => !wanted,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_what_is_so),
        Value::Number(_) => false,
    }
}

/// An `AAQ`, narrowed.
#[derive(Default, Deserialize)]
struct AaqView {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}
