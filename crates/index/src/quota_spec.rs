//! The specification of a quota as it is decoded; ResourceQuotas and `ApplicationAwareResourceQuota`s have the same.

use serde::Deserialize;

use crate::quantity::{ResourceTexts, resource_list};

/// `spec` of a quota.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaSpecWire {
    /// Limits by resource name.
    #[serde(default, deserialize_with = "resource_list")]
    pub hard: ResourceTexts,
    /// Scopes that all have to match.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
    /// Further scopes, with operators.
    #[serde(default)]
    pub scope_selector: Option<ScopeSelectorWire>,
}

/// `spec.scopeSelector` of a quota.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeSelectorWire {
    /// Requirements that all have to match.
    #[serde(default)]
    pub match_expressions: Option<Vec<ScopeRequirementWire>>,
}

/// One requirement of a scope selector.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeRequirementWire {
    /// The scope's name.
    #[serde(default)]
    pub scope_name: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(default)]
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(default)]
    pub values: Option<Vec<String>>,
}
