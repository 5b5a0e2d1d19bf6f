//! AAQ CREATE and UPDATE: there is one at most beside that of the operator, and its selector is one that the API server
//! takes.
//!
//! Upstream refuses every creation and registers its webhook only while an AAQ exists, which is why there a deleted AAQ
//! cannot be created again at once. Sluice's webhook is always registered and knows whether there is one. A selector that
//! the API server refuses in what gates pods would be kept, and nothing would follow it: it is refused here.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use sluice_api::{is_placeholder, refused_sidecars};
use sluice_index::{AaqSpecWire, read_selector};

use super::quota_rules::aggregate;
use crate::review::{Metadata, Operation, Review, Verdict, nullable, unreadable};
use crate::settings::{AaqPresence, Settings};

const VALID: &str = "AAQ request is valid";
const SINGLE: &str = "only a single AAQ CR instance is allowed";
const SELECTOR: &str = "spec.namespaceSelector";
const EVERY_NAMESPACE: &str = "spec.namespaceSelector: {} gates every namespace but those that --exempt-namespaces names, \
     and refuses pods with spec.nodeName there: leave out the namespaces of further storage and network plugins by NotIn on \
     the label kubernetes.io/metadata.name";

/// Decides on the creation or the change of an `AAQ`.
pub fn aaq_validate(review: &Review<'_>, settings: &Settings) -> Verdict {
    let checked = match review.operation {
        Operation::Create => single(settings).and_then(|()| check(review)),
        Operation::Update => becomes_single(review, settings).and_then(|()| check(review)),
        _ => Ok(Vec::new()),
    };
    match checked {
        Ok(warnings) => Verdict { warnings, ..Verdict::allow(VALID) },
        Err(refused) => refused,
    }
}

fn single(settings: &Settings) -> Result<(), Verdict> {
    match settings.aaq {
        // That of the operator is taken away by it once there is another.
        AaqPresence::Absent | AaqPresence::Present { gives_way: true, .. } => Ok(()),
        AaqPresence::Present { .. } => Err(Verdict::deny(SINGLE)),
        AaqPresence::Unknown => Err(Verdict::refuse(
            503,
            "it is not known yet whether an AAQ CR instance exists: try again, and if this stays, look at the \
             webhook's log and at its permission to list aaqs",
        )),
    }
}

/// That of the operator may become a user's by an edit, which makes it hold by its age: not beside another that holds.
fn becomes_single(review: &Review<'_>, settings: &Settings) -> Result<(), Verdict> {
    let another_holds = matches!(settings.aaq, AaqPresence::Present { gives_way: false, .. });
    if !another_holds {
        return Ok(());
    }
    let old = review.read_old_object::<AaqIdentity>("an AAQ")?;
    let new = review.read_object::<AaqIdentity>("an AAQ")?;
    if old.gives_way() && !new.gives_way() { Err(Verdict::deny(SINGLE)) } else { Ok(()) }
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
    let sidecars = |spec: &Value| spec.pointer("/configuration/sidecarEvaluators").cloned();
    if let Some(containers) = sidecars(&new.spec).filter(|it| Some(it) != sidecars(&old.spec).as_ref()) {
        check_sidecars(&containers)?;
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

fn check_sidecars(containers: &Value) -> Result<(), Verdict> {
    let refused = refused_sidecars(containers);
    if refused.is_empty() {
        return Ok(());
    }
    let told = refused.iter().map(|it| format!("spec.{}: {}", it.field, it.why));
    Err(Verdict::deny(aggregate(told.collect())))
}

/// A warning for each field that is set and has no effect. It is no refusal: what cannot be in force leaves what is, and
/// another field may be what cures an installation.
fn not_in_force(spec: &Value) -> impl Iterator<Item = String> {
    let told = sluice_api::not_in_force(spec).into_iter();
    told.map(|told| format!("spec.{} is not in force: {}", told.field, told.why))
}

/// An `AAQ`, narrowed.
#[derive(Default, Deserialize)]
struct AaqView {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

/// What says of an `AAQ` whether it gives way.
#[derive(Default, Deserialize)]
struct AaqIdentity {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Identity,
    #[serde(default)]
    spec: Value,
}

/// Of its metadata.
#[derive(Default, Deserialize)]
struct Identity {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl AaqIdentity {
    fn gives_way(&self) -> bool {
        let asks_for_nothing = match &self.spec {
            Value::Object(fields) => fields.values().all(Value::is_null),
            spec => spec.is_null(),
        };
        is_placeholder(self.metadata.name.as_deref(), self.metadata.labels.as_ref(), asks_for_nothing)
    }
}
