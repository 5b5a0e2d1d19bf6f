//! The spec of a quota: checked as Kubernetes checks a ResourceQuota (`docs/quota-semantics.md`, *Validation*), then
//! compiled for decisions.

mod field_error;
mod names;
mod scopes;
mod validate;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::quantity::Quantity;
use crate::resource::{KeyKind, Resource, key_kind};
use crate::scope::{Operator, Scope, ScopeRequirement, Scopes};

pub use validate::{validate, validate_update};

/// A quota spec with the texts of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawQuotaSpec {
    pub hard: BTreeMap<String, Quantity>,
    pub scopes: Vec<String>,
    /// `scopeSelector.matchExpressions`; `None` without a `scopeSelector`.
    pub scope_selector: Option<Vec<ScopeRequirementText>>,
}

/// An entry of `scopeSelector.matchExpressions` with the texts of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRequirementText {
    pub scope_name: String,
    pub operator: String,
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The value is not allowed.
    Invalid,
    /// A value is missing.
    Required,
    /// There must be no value.
    Forbidden,
    /// A list is too long.
    TooMany,
}

/// A rule that a field breaks. Its text is `field: kind: value: detail`, as in the API server's answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FieldError {
    /// Path of the field, such as `spec.hard[pods]`.
    pub field: String,
    pub kind: FieldErrorKind,
    /// The offending value as JSON; empty where the value does not matter. Long values are cut.
    pub value: String,
    pub detail: String,
}

impl FieldError {
    /// The text `value` of `field` breaks the rule `detail`.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &str, detail: &str) -> Self {
        let (field, detail) = (field.into(), detail.to_owned());
        Self { field, kind: FieldErrorKind::Invalid, value: field_error::json(value), detail }
    }

    /// `field` has no value and needs one, or has one and must not, as `kind` says.
    #[must_use]
    pub fn without_value(field: impl Into<String>, kind: FieldErrorKind, detail: &str) -> Self {
        Self { field: field.into(), kind, value: String::new(), detail: detail.to_owned() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, kind, value, detail } = self;
        match kind {
            FieldErrorKind::Invalid => write!(f, "{field}: Invalid value: {value}: {detail}"),
            FieldErrorKind::Required => write!(f, "{field}: Required value: {detail}"),
            FieldErrorKind::Forbidden => write!(f, "{field}: Forbidden: {detail}"),
            FieldErrorKind::TooMany => write!(f, "{field}: Too many: {value}: {detail}"),
        }
    }
}

/// One limit of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardEntry {
    /// The key as the user wrote it.
    pub key: Arc<str>,
    /// What it counts. Two keys of a quota may count the same, such as `cpu` and `requests.cpu`.
    pub resource: Resource,
    pub hard: Quantity,
    /// Who can consume it.
    pub kind: KeyKind,
}

/// A quota spec ready for decisions.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CompiledQuota {
    /// The limits, sorted by key.
    pub entries: Vec<HardEntry>,
    /// Which pods they govern.
    pub scopes: Scopes,
}

/// Checks and compiles a spec.
///
/// # Errors
/// Everything that [`validate`] finds, which is never empty then.
pub fn compile(spec: &RawQuotaSpec) -> Result<CompiledQuota, Vec<FieldError>> {
    let errors = validate(spec);
    if !errors.is_empty() {
        return Err(errors);
    }
    let entries = spec.hard.iter().map(|(key, hard)| HardEntry {
        key: Arc::from(key.as_str()),
        resource: Resource::from_quota_key(key),
        hard: *hard,
        kind: key_kind(key),
    });
    let listed = spec.scopes.iter().filter_map(|name| Scope::from_name(name)).map(ScopeRequirement::exists);
    let selected = spec.scope_selector.iter().flatten().filter_map(|text| {
        let scope = Scope::from_name(&text.scope_name)?;
        let operator = Operator::from_name(&text.operator)?;
        Some(ScopeRequirement::new(scope, operator, text.values.iter().map(String::as_str)))
    });
    Ok(CompiledQuota { entries: entries.collect(), scopes: Scopes::new(listed.chain(selected)) })
}
