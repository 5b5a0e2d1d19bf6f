//! `MTQ`: the configuration object of a managed-tenant-quota installation (`docs/predecessors.md`, *API of MTQ*).
//!
//! Served so that manifests written for managed-tenant-quota still apply. Where there is no `AAQ` it places the Deployments.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::aaq::{AaqStatus, CertConfig, ImagePullPolicy, NodePlacement};

/// `spec`: every field is optional. What an `AAQ` says holds before it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "mtq.kubevirt.io",
    version = "v1alpha1",
    kind = "MTQ",
    plural = "mtqs",
    shortname = "mtq",
    shortname = "mtqs",
    status = "AaqStatus",
    derive = "PartialEq",
    doc = "The configuration of an installation of managed-tenant-quota. What an AAQ says holds before it.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase")]
pub struct MtqSpec {
    /// Lifetimes of the certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config: Option<CertConfig>,
    /// When images are pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Where the controller and the lock server run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra: Option<NodePlacement>,
    /// Priority class of the controller and the lock server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// Nothing runs as a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<NodePlacement>,
}
