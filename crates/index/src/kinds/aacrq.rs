//! `ApplicationAwareAppliedClusterResourceQuota`s, the mirrors of cluster quotas, as they are decoded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use sluice_api::ApplicationAwareAppliedClusterResourceQuota;

/// A mirror, as it is.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ApplicationAwareAppliedClusterResourceQuota)]
pub struct AacrqWire {
    pub metadata: ObjectMeta,
    /// The copy of the quota's specification.
    #[serde(default)]
    pub spec: Value,
    /// The copy of the quota's status, or the part of it that the namespace's users may see.
    #[serde(default)]
    pub status: Value,
}
