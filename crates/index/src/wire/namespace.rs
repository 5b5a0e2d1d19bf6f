//! A namespace as it is decoded.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A namespace: its name, labels and whether it is being deleted.
#[derive(Clone, Debug, Deserialize, Serialize, kube::Resource)]
#[resource(inherit = Namespace)]
pub struct NamespaceWire {
    /// Name, uid, version and labels; nothing else is filled.
    #[serde(deserialize_with = "super::meta::labelled")]
    pub metadata: ObjectMeta,
}
