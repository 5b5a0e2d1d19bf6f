//! `ApplicationAwareResourceQuota`s as they are decoded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use sluice_api::ApplicationAwareResourceQuota;

use crate::quantity::{ResourceTexts, resource_list};
use crate::quota_spec::QuotaSpecWire;

/// A quota with its texts as the user wrote them.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ApplicationAwareResourceQuota)]
pub struct ArqWire {
    /// Name, namespace, uid and version, and who wrote which subresource when; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::managed")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: QuotaSpecWire,
    /// What was last recorded.
    #[serde(default)]
    pub status: Option<QuotaStatusWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaStatusWire {
    /// Limits that were last enforced.
    #[serde(default, deserialize_with = "resource_list")]
    pub hard: ResourceTexts,
    #[serde(default, deserialize_with = "resource_list")]
    pub used: ResourceTexts,
    /// For people: `used/hard` of the requests.
    #[serde(default)]
    pub requests: Option<String>,
    /// For people: `used/hard` of the limits.
    #[serde(default)]
    pub limits: Option<String>,
    /// How many pods wait for this quota.
    #[serde(default)]
    pub held: Option<i64>,
    /// When the oldest of the pods that wait was created.
    #[serde(default)]
    pub held_since: Option<Time>,
    /// Grows with each charge; the last six digits tell which process made it.
    #[serde(default)]
    pub charges: Option<i64>,
    /// What is said to be true of the quota.
    #[serde(default)]
    pub conditions: Option<Vec<QuotaConditionWire>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaConditionWire {
    #[serde(default, rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// For programs.
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    /// Since when it has its status.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
}
