//! The configuration object as it is decoded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};
use sluice_api::AAQ;

/// An `AAQ`: which namespaces are targeted.
#[derive(Clone, Debug, Deserialize, Serialize, kube::Resource)]
#[resource(inherit = AAQ)]
pub struct AaqWire {
    /// Name, uid and version; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: AaqSpecWire,
}

/// The part of an `AAQ`'s specification that matters here.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AaqSpecWire {
    /// `None` means the default label ([`sluice_api::names::TARGET_LABEL`]); empty means every namespace.
    pub namespace_selector: Option<LabelSelector>,
}
