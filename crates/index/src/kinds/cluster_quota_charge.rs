//! `ClusterQuotaCharge`s as they are decoded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use sluice_api::ClusterQuotaCharge;

use super::arq::QuotaStatusWire;

/// What was recorded as charged to a cluster quota. It has the name of the quota's uid.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ClusterQuotaCharge)]
pub struct ClusterQuotaChargeWire {
    /// Name, uid and version, and who wrote which subresource when; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::managed")]
    pub metadata: ObjectMeta,
    /// What was recorded: `hard`, `used` and `charges` as in the status of a quota.
    #[serde(default)]
    pub status: Option<QuotaStatusWire>,
}
