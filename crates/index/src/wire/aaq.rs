//! The configuration object as it is decoded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use sluice_api::{AAQ, AaqStatus};

/// An `AAQ`: which namespaces are targeted, and what is said of the installation.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = AAQ)]
pub struct AaqWire {
    /// Name, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: AaqSpecWire,
    /// The status; `None` if it cannot be read.
    #[serde(default = "crate::stated::empty", deserialize_with = "crate::stated::readable")]
    pub status: Option<AaqStatus>,
}

/// The part of an `AAQ`'s specification that matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AaqSpecWire {
    /// `None` means the default label ([`sluice_api::names::TARGET_LABEL`]); empty means every namespace.
    pub namespace_selector: Option<LabelSelector>,
}
