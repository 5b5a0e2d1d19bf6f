//! A namespace as it is decoded.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// A namespace: its labels, whether it is being deleted, and whether it is excluded from head-room.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Namespace)]
pub struct NamespaceWire {
    /// Name, uid, version, times, labels and the annotations that matter here.
    #[serde(deserialize_with = "super::meta::annotated")]
    pub metadata: ObjectMeta,
}
