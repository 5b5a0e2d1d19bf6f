//! The specification of a quota as it is decoded; ResourceQuotas and `ApplicationAwareResourceQuota`s have the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use sluice_engine::{Quantity, RawQuotaSpec, ScopeRequirementText};

use crate::quantity::{ResourceTexts, resource_list};

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

impl QuotaSpecWire {
    /// As the engine takes it.
    ///
    /// # Errors
    /// The first amount that is no quantity.
    pub fn raw(&self) -> Result<RawQuotaSpec, Arc<str>> {
        let mut hard = BTreeMap::new();
        for (key, text) in &self.hard {
            let quantity = Quantity::parse_json_text(&text.0)
                .map_err(|error| Arc::from(format!("spec.hard[{key}]: {error}")))?;
            hard.insert(key.clone(), quantity);
        }
        let requirement = |wire: &ScopeRequirementWire| ScopeRequirementText {
            scope_name: wire.scope_name.clone(),
            operator: wire.operator.clone(),
            values: wire.values.clone().unwrap_or_default(),
        };
        Ok(RawQuotaSpec {
            hard,
            scopes: self.scopes.clone().unwrap_or_default(),
            scope_selector: self
                .scope_selector
                .as_ref()
                .map(|selector| selector.match_expressions.iter().flatten().map(requirement).collect()),
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeSelectorWire {
    /// Requirements that all have to match.
    #[serde(default)]
    pub match_expressions: Option<Vec<ScopeRequirementWire>>,
}

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
