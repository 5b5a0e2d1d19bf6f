//! `ApplicationAwareAppliedClusterResourceQuota`: a cluster quota as a namespace that it limits shows it to its users.
//!
//! Written by the controller and read by people: nothing is decided by an object of this kind. As in upstream's API `status`
//! is no subresource, so the mirror is created and changed by one write.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arq::ApplicationAwareResourceQuotaSpec;
use crate::cluster_quota::{ClusterQuotaSelector, ClusterQuotaStatus};

/// `spec`: a copy of the cluster quota's.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "aaq.kubevirt.io",
    version = "v1alpha1",
    kind = "ApplicationAwareAppliedClusterResourceQuota",
    plural = "applicationawareappliedclusterresourcequotas",
    shortname = "aacrq",
    shortname = "aacrqs",
    namespaced,
    status = "ClusterQuotaStatus",
    derive = "PartialEq",
    doc = "A cluster quota that limits the pods of this namespace; for reading only. The limit itself is the \
           ApplicationAwareClusterResourceQuota of the same name.",
    printcolumn(name = "Request", type_ = "string", json_path = ".status.requests"),
    printcolumn(name = "Limit", type_ = "string", json_path = ".status.limits"),
    printcolumn(name = "Held", type_ = "integer", json_path = ".status.held"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ApplicationAwareAppliedClusterResourceQuotaSpec {
    /// What the pods of the selected namespaces may take together.
    pub quota: ApplicationAwareResourceQuotaSpec,
    /// The namespaces.
    pub selector: ClusterQuotaSelector,
}
