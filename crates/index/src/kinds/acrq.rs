//! `ApplicationAwareClusterResourceQuota`s as they are decoded.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;
use sluice_api::ApplicationAwareClusterResourceQuota;

use crate::quota_spec::QuotaSpecWire;

/// A cluster quota with its texts as the user wrote them.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ApplicationAwareClusterResourceQuota)]
pub struct AcrqWire {
    /// Name, uid and version; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
    /// What is wanted, as it is written: it is copied to where it applies.
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: Value,
}

impl AcrqWire {
    /// What is wanted.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub fn read_spec(&self) -> Result<AcrqSpecWire, String> {
        AcrqSpecWire::deserialize(&self.spec).map_err(|error| format!("spec: {error}"))
    }

    /// Whether the status shows limits.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.status.pointer("/total/hard").and_then(Value::as_object).is_some_and(|hard| !hard.is_empty())
    }
}

/// `spec` of a cluster quota.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AcrqSpecWire {
    /// Limits on what the pods of all selected namespaces take together.
    #[serde(default)]
    pub quota: QuotaSpecWire,
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
