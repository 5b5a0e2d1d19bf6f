//! `ApplicationAwareClusterResourceQuota`: what the pods of several namespaces may take together
//! (`docs/quota-semantics.md`).

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arq::ApplicationAwareResourceQuotaSpec;
use crate::cluster_quota::{ClusterQuotaSelector, ClusterQuotaStatus};

/// `spec`: the limits, and the namespaces that share them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "aaq.kubevirt.io",
    version = "v1alpha1",
    kind = "ApplicationAwareClusterResourceQuota",
    plural = "applicationawareclusterresourcequotas",
    shortname = "acrq",
    shortname = "acrqs",
    status = "ClusterQuotaStatus",
    derive = "PartialEq",
    doc = "A limit on what the pods of all selected namespaces take together. Pods that do not fit wait behind a \
           scheduling gate instead of being refused.",
    printcolumn(name = "Request", type_ = "string", json_path = ".status.requests"),
    printcolumn(name = "Limit", type_ = "string", json_path = ".status.limits"),
    printcolumn(name = "Held", type_ = "integer", json_path = ".status.held"),
    printcolumn(name = "Oldest", type_ = "date", json_path = ".status.heldSince"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ApplicationAwareClusterResourceQuotaSpec {
    /// What the pods of the selected namespaces may take together.
    pub quota: ApplicationAwareResourceQuotaSpec,
    /// The namespaces.
    pub selector: ClusterQuotaSelector,
}
