//! `ClusterQuotaCharge`: the charge of a cluster quota, recorded before pods are released.
//!
//! The charge of a quota has to be recorded by compare-and-swap. The status of the cluster quota itself is for reading, and
//! grows with its namespaces; this object has the sums alone, and so each charge is a small write. It lies in the namespace
//! of the installation, has the uid of its quota as its name, and is garbage-collected with the quota, its owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec`: whose charge it is.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "quota.sluice.dev",
    version = "v1alpha1",
    kind = "ClusterQuotaCharge",
    plural = "clusterquotacharges",
    namespaced,
    status = "ClusterQuotaChargeStatus",
    derive = "PartialEq",
    doc = "The charge of a cluster quota, recorded before pods are released.",
    printcolumn(name = "Quota", type_ = "string", json_path = ".spec.quota"),
    printcolumn(name = "Charges", type_ = "integer", json_path = ".status.charges"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ClusterQuotaChargeSpec {
    /// Name of the ApplicationAwareClusterResourceQuota, for readers: the object's own name is its uid.
    pub quota: String,
}

/// `status`: the charge.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct ClusterQuotaChargeStatus {
    /// The limits that are enforced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, Quantity>,
    /// What released pods of all selected namespaces take, for each key of `hard`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, Quantity>,
    /// Grows with each charge, so that one that leaves the sums as they were (one pod for another that has ended)
    /// still makes another version. The last six digits tell which process made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charges: Option<i64>,
}
