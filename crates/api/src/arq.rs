//! `ApplicationAwareResourceQuota`: what the pods of a namespace may take together (`docs/quota-semantics.md`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ScopeSelector;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec`: the fields of a core ResourceQuota's `spec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "aaq.kubevirt.io",
    version = "v1alpha1",
    kind = "ApplicationAwareResourceQuota",
    plural = "applicationawareresourcequotas",
    shortname = "arq",
    shortname = "arqs",
    namespaced,
    status = "ApplicationAwareResourceQuotaStatus",
    derive = "PartialEq",
    doc = "A limit on what the pods of a namespace take together. Pods that do not fit wait behind a scheduling \
           gate instead of being refused.",
    printcolumn(name = "Request", type_ = "string", json_path = ".status.requests"),
    printcolumn(name = "Limit", type_ = "string", json_path = ".status.limits"),
    printcolumn(name = "Held", type_ = "integer", json_path = ".status.held"),
    printcolumn(name = "Oldest", type_ = "date", json_path = ".status.heldSince"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationAwareResourceQuotaSpec {
    /// Limits by resource name. Quantities are kept as they are written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, Quantity>,
    /// Further conditions on the pods that count; all of them have to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_selector: Option<ScopeSelector>,
    /// Conditions on the pods that count; all of them have to match. Empty: every pod counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

/// `status`: the fields of a core ResourceQuota's `status`, and more that is there to be read by people.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationAwareResourceQuotaStatus {
    /// The limits that are enforced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, Quantity>,
    /// What released pods take, for each key of `hard`; of keys of other objects what the managed ResourceQuota says, once
    /// it says something.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, Quantity>,
    /// `used/hard` of everything but limits, for the column Request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<String>,
    /// `used/hard` of the keys that start with `limits.`, for the column Limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
    /// How many pods wait because of this quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<i64>,
    /// When the oldest of the pods that wait was created; absent while none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Time>,
    /// Grows with each charge, so that one that leaves the sums as they were (one pod for another that has ended)
    /// still makes another version. The last six digits tell which process made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charges: Option<i64>,
    /// What is true of the quota: `PodsHeld` while pods wait for it, `UncountedKeys` while `spec.hard` has keys that
    /// nothing enforces, `Enforced` with the status `False` while pods of the namespace are not gated, `Evaluated` with the
    /// status `False` while evaluators have no answer about pods that run, and, where KubeVirt runs, `VirtualMachines` with
    /// the calculator by which they are counted as its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
