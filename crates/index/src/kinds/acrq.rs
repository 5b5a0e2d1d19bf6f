//! `ApplicationAwareClusterResourceQuota`s as they are decoded.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use sluice_api::ApplicationAwareClusterResourceQuota;

use crate::quantity::{ResourceTexts, resource_list};
use crate::quota_spec::QuotaSpecWire;

/// A cluster quota with its texts as the user wrote them.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ApplicationAwareClusterResourceQuota)]
pub struct AcrqWire {
    /// Name, uid and version; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: AcrqSpecWire,
    /// What is shown.
    #[serde(default)]
    pub status: Option<AcrqStatusWire>,
}

/// `spec` of a cluster quota.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AcrqSpecWire {
    /// Limits on what the pods of all selected namespaces take together.
    #[serde(default)]
    pub quota: QuotaSpecWire,
    /// The namespaces.
    #[serde(default)]
    pub selector: SelectorWire,
}

/// `spec.selector` of a cluster quota: both parts have to match; without either, all namespaces do.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SelectorWire {
    /// Labels of the namespace.
    #[serde(default)]
    pub labels: Option<LabelSelector>,
    /// Annotations that the namespace has with exactly these values.
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The part of a cluster quota's status that matters here.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AcrqStatusWire {
    /// Over all namespaces.
    #[serde(default)]
    pub total: AcrqTotalWire,
}

/// `status.total` of a cluster quota.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AcrqTotalWire {
    /// Limits that were last enforced.
    #[serde(default, deserialize_with = "resource_list")]
    pub hard: ResourceTexts,
}
