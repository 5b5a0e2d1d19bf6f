//! `HeadroomPolicy`: what live migrations may take on top of ResourceQuotas, for many namespaces at once.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// `spec`: where, how much, and what is left alone.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "quota.sluice.dev",
    version = "v1alpha1",
    kind = "HeadroomPolicy",
    plural = "headroompolicies",
    status = "HeadroomPolicyStatus",
    derive = "PartialEq",
    doc = "What the target pods of live migrations may take on top of the ResourceQuotas of the namespaces it selects.",
    printcolumn(name = "Budget", type_ = "string", json_path = ".spec.budget.mode"),
    printcolumn(name = "Namespaces", type_ = "integer", json_path = ".status.namespaces"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomPolicySpec {
    /// The namespaces. Empty: all of them.
    #[schemars(schema_with = "rules::selector")]
    pub namespace_selector: LabelSelector,
    /// How much.
    pub budget: HeadroomBudget,
    /// What is left alone although it is selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opt_out: Option<HeadroomOptOut>,
}

/// How much target pods may take on top of the quotas.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::budget()))]
pub struct HeadroomBudget {
    /// Who shares the amounts in `resources`.
    pub mode: BudgetMode,
    /// By key of a ResourceQuota. `cpu`, `memory` and `ephemeral-storage` mean the same as with `requests.` before
    /// them. A key that is not here gets nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = rules::MAX_KEYS,
        "x-kubernetes-validations" = [rules::not_negative(), rules::pod_keys()]
    ))]
    pub resources: BTreeMap<String, Quantity>,
    /// Only with mode PerNamespace: so many hundredths of each quota's own `spec.hard`, beside the amounts in `resources`.
    /// Where both name a resource the larger counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("format" = "int32"))]
    pub percent: Option<u32>,
    /// Only with mode Pool: what one namespace may take of the amounts in `resources` at most. A key that is not here has
    /// no such bound.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = rules::MAX_KEYS,
        "x-kubernetes-validations" = [rules::not_negative(), rules::pod_keys()]
    ))]
    pub per_namespace: BTreeMap<String, Quantity>,
}

/// Who shares the amounts of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum BudgetMode {
    /// There are no amounts: whatever a target pod needs.
    Unlimited,
    /// Each namespace has the amounts for itself.
    #[default]
    PerNamespace,
    /// All selected namespaces have the amounts together.
    Pool,
}

/// What is left alone although it is selected.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomOptOut {
    /// Names of namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: Vec<String>,
    /// ResourceQuotas by their labels. Empty: all of them; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::selector")]
    pub resource_quota_selector: Option<LabelSelector>,
}

/// `status`: what the policy does now.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomPolicyStatus {
    /// The generation that the rest speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many namespaces are selected and not opted out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<i64>,
    /// What these namespaces use above `spec.hard` of their quotas at the moment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, Quantity>,
    /// What is true of the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
