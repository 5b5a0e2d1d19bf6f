//! `VirtualMachineMigrationResourceQuota`: what live migrations of a namespace may take on top of its
//! ResourceQuotas (`docs/predecessors.md`, *API of MTQ*).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuotaSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// `spec`: the amounts.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "mtq.kubevirt.io",
    version = "v1alpha1",
    kind = "VirtualMachineMigrationResourceQuota",
    plural = "virtualmachinemigrationresourcequotas",
    shortname = "vmmrq",
    shortname = "vmmrqs",
    category = "all",
    namespaced,
    status = "VirtualMachineMigrationResourceQuotaStatus",
    derive = "PartialEq",
    doc = "What the target pods of live migrations may take in a namespace on top of its \
           ResourceQuotas. Several of them add up.",
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
pub struct VirtualMachineMigrationResourceQuotaSpec {
    /// By key of a ResourceQuota. `cpu`, `memory` and `ephemeral-storage` mean the same as with `requests.` before them.
    // No rule on the keys: managed-tenant-quota takes any, and ignores those that no quota has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = rules::MAX_KEYS, "x-kubernetes-validations" = [rules::not_negative()]))]
    pub additional_migration_resources: BTreeMap<String, Quantity>,
}

/// `status`: managed-tenant-quota's fields, and ours below them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineMigrationResourceQuotaStatus {
    /// The amounts that are in force.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_migration_resources: BTreeMap<String, Quantity>,
    /// Names of the quotas that managed-tenant-quota raises, by name of the migration. Sluice writes nothing here: its
    /// raises last milliseconds, and the condition `NotEnough` says what a migration that waits lacks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub migrations_to_blocking_resource_quotas: BTreeMap<String, Vec<String>>,
    /// Quotas as they were before managed-tenant-quota raised their specifications. Sluice never changes a quota's
    /// specification and writes nothing here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub original_blocking_resource_quotas: Vec<OriginalResourceQuota>,
    /// Declared by managed-tenant-quota, which never writes it either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// The generation that the conditions speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is true of these amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A ResourceQuota as it was before it was raised.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct OriginalResourceQuota {
    /// Its name.
    pub name: String,
    /// Its specification.
    pub spec: ResourceQuotaSpec,
}
