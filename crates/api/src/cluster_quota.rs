//! What the two kinds of cluster quota share: which namespaces are limited together, and what their pods take.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which namespaces a cluster quota limits: those that have the labels and the annotations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct ClusterQuotaSelector {
    /// Annotations that a namespace needs, with exactly these values. Absent or empty: any will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels that a namespace needs. Empty: every namespace has them. Absent: only annotations select.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelSelector>,
}

/// `status`: what the namespaces take together and one by one, and more that is there to be read by people.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQuotaStatus {
    /// All selected namespaces together.
    pub total: QuotaAmounts,
    /// The selected namespaces one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<NamespaceAmounts>>,
    /// When `total` was so. Only in mirrors, which are brought up to date one after another; what the own namespace takes is
    /// shown at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_as_of: Option<Time>,
    /// How many selected namespaces `namespaces` leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_namespaces: Option<i64>,
    /// `used/hard` of everything but limits, for the column Request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<String>,
    /// `used/hard` of the keys that start with `limits.`, for the column Limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
    /// How many pods wait because of this quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<i64>,
    /// When the oldest of the pods that wait was created; absent while none waits, and in mirrors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Time>,
    /// What is true of the quota: `PodsHeld` while pods wait for it, `UncountedKeys` while `spec.quota.hard` has keys that
    /// nothing counts, `Enforced` with the status `False` while pods of selected namespaces are not gated, `Evaluated` with
    /// the status `False` while evaluators have no answer about pods that run, and, where KubeVirt runs, `VirtualMachines`
    /// with the calculator by which they are counted as its reason. Mirrors have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Limits and usage, as in the `status` of a core ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct QuotaAmounts {
    /// The limits that are enforced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, Quantity>,
    /// What released pods take, for each key of `hard`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, Quantity>,
}

/// What the pods of one namespace take of a cluster quota.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct NamespaceAmounts {
    /// Its name.
    pub namespace: String,
    /// The limits, which are those of the quota, and what the namespace's own pods take.
    pub status: QuotaAmounts,
}
