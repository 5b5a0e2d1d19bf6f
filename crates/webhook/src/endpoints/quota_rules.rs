//! What the endpoints that validate quotas share: the rules of core ResourceQuota (`docs/quota-semantics.md`, *Validation*).
//!
//! Upstream asks the API server with a dry-run create of a ResourceQuota; here the same rules are applied in
//! place, so a full quota on `resourcequotas` or a foreign webhook cannot get in the way.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sluice_engine::managed::managed;
use sluice_engine::quantity::Quantity;
use sluice_engine::quota_spec::{RawQuotaSpec, ScopeRequirementText, compile};
use sluice_engine::{CompiledQuota, FieldError};
use sluice_index::{QuantityText, QuotaSpecWire, ScopeRequirementWire, ScopeSelectorWire};

use crate::review::{Metadata, Operation, Review, Verdict, nullable, unreadable};

/// Decides on the creation or the change of a quota. `check` gives the warnings about its specification.
pub(super) fn judge<S: DeserializeOwned>(
    review: &Review<'_>,
    valid: &'static str,
    check: impl FnOnce(S) -> Result<Vec<String>, Verdict>,
) -> Verdict {
    match &review.operation {
        Operation::Create | Operation::Update => {}
        Operation::Delete | Operation::Connect => return Verdict::allow(valid),
        Operation::Unknown(operation) => {
            return Verdict::malformed(format!("operation \"{operation}\" on a quota is not known"));
        }
    }
    let warnings = asked_for(review).and_then(|spec| match spec {
        Some(spec) => {
            let read = serde_json::from_str(spec);
            check(read.map_err(|error| unreadable("object.spec", "a quota", &error))?)
        }
        None => Ok(Vec::new()),
    });
    match warnings {
        Ok(warnings) => Verdict { warnings, ..Verdict::allow(valid) },
        Err(refused) => refused,
    }
}

/// The specification as text; `None` if an update does not ask for anything new: a quota that is invalid by today's rules
/// can still be labelled, and loses its finalizers.
fn asked_for<'a>(review: &Review<'a>) -> Result<Option<&'a str>, Verdict> {
    let quota = review.read_object::<QuotaView<'_>>("a quota")?;
    if review.operation == Operation::Update {
        let old = review.read_old_object::<QuotaView<'_>>("a quota")?;
        let deleting = quota.metadata.deletion_timestamp.is_some();
        if deleting || quota.spec.map(RawValue::get) == old.spec.map(RawValue::get) {
            return Ok(None);
        }
    }
    Ok(Some(quota.spec.map_or("{}", RawValue::get)))
}

/// The specification at `field`, ready for use, and the rules that it breaks: without the amounts that cannot be read, and
/// `None` if what remains breaks some.
pub(super) fn read_quota(field: &str, wire: QuotaSpecWire) -> (Option<CompiledQuota>, Vec<String>) {
    let (spec, mut errors) = raw_spec(field, wire);
    let broken = match compile(&spec) {
        Ok(quota) => return (Some(quota), errors),
        Err(broken) => broken.into_iter(),
    };
    // The engine speaks of the quota of a namespace, where the field is `spec`.
    let here = broken.map(|error| FieldError { field: error.field.replacen("spec", field, 1), ..error });
    errors.extend(here.map(|error| error.to_string()));
    (None, errors)
}

/// The kind of managed quotas of a kind of quotas.
pub(super) struct Managed {
    /// Where the limits of the quota are.
    pub field: &'static str,
    /// The kind of the managed one.
    pub kind: &'static str,
    /// What follows the name of the quota in that of the managed one.
    pub suffix: &'static str,
    /// The longest name that leaves room for it.
    pub max_name: usize,
}

impl Managed {
    /// What is wrong with the name of a quota that needs a managed one, whose name is longer.
    pub fn name_too_long(&self, name: &str, quota: &CompiledQuota) -> Option<String> {
        let Self { field, kind, suffix, max_name } = self;
        let key = &managed(quota).next()?.key;
        let rule = format!(
            "must be no more than {max_name} characters with {key} in {field}, which is limited by a {kind} of this name \
             and {suffix}; use a shorter name, or a quota of its own for such keys"
        );
        (name.len() > *max_name).then(|| FieldError::invalid("metadata.name", name, &rule).to_string())
    }
}

/// Refuses if there are errors.
pub(super) fn refuse(errors: Vec<String>) -> Result<(), Verdict> {
    if errors.is_empty() { Ok(()) } else { Err(Verdict::deny(aggregate(errors))) }
}

/// One error as it is, several as core joins them: `[a, b]`, without repetitions.
pub(super) fn aggregate(errors: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// The engine's form of a spec, and an error for each amount that is no quantity.
fn raw_spec(field: &str, wire: QuotaSpecWire) -> (RawQuotaSpec, Vec<String>) {
    let mut hard = BTreeMap::new();
    let mut errors = Vec::new();
    for (key, QuantityText(text)) in wire.hard.into_iter().collect::<BTreeMap<_, _>>() {
        match Quantity::parse_json_text(&text) {
            Ok(quantity) => {
                hard.insert(key, quantity);
            }
            Err(error) => {
                let shown: String = text.chars().take(64).collect();
                errors.push(format!("{field}.hard[{key}]: Invalid value: {shown:?}: {error}"));
            }
        }
    }
    let requirement = |wire: ScopeRequirementWire| ScopeRequirementText {
        scope_name: wire.scope_name,
        operator: wire.operator,
        values: wire.values.unwrap_or_default(),
    };
    let requirements = |selector: ScopeSelectorWire| {
        selector.match_expressions.into_iter().flatten().map(requirement).collect()
    };
    let scope_selector = wire.scope_selector.map(requirements);
    (RawQuotaSpec { hard, scopes: wire.scopes.unwrap_or_default(), scope_selector }, errors)
}

/// A quota, narrowed.
#[derive(Deserialize)]
struct QuotaView<'a> {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(default, borrow)]
    spec: Option<&'a RawValue>,
}
