//! `MigrationWindow`: a namespace in which, for a moment, nobody but one live migration gets pods.
//!
//! The object exists only while the window is open: creating it takes the lock, deleting it gives the lock back.
//! `deploy/install.yaml` has the admission policy that reads it.

// The derive takes one attribute per printer column, and their types repeat.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// `spec`: who opened it, for which migration, and which quotas may be raised. It never changes.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "quota.sluice.dev",
    version = "v1alpha1",
    kind = "MigrationWindow",
    plural = "migrationwindows",
    namespaced,
    derive = "PartialEq",
    doc = "While it exists under the name window, the namespace gets no pods but the target of one live migration. Sluice creates and deletes it.",
    validation = Rule::new("self.metadata.name in ['window', 'probe', 'drain']")
        .message("the name has to be window, or probe or drain in a dry run"),
    printcolumn(name = "Migration", type_ = "string", json_path = ".spec.migration.name"),
    printcolumn(name = "VM", type_ = "string", json_path = ".spec.migration.vmi"),
    printcolumn(name = "Until", type_ = "string", json_path = ".spec.until"),
    printcolumn(name = "Holder", type_ = "string", json_path = ".spec.holder"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rules::immutable()]))]
pub struct MigrationWindowSpec {
    /// The process that opened it.
    #[schemars(length(min = 1, max = 253))]
    pub holder: String,
    /// Unique to this opening; each denial carries it.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[0-9A-Za-z-]+$"))]
    pub nonce: String,
    /// Username of KubeVirt's controller, which creates the target pod.
    #[schemars(length(min = 1, max = 253))]
    pub creator: String,
    /// From this second of the API server's clock on it holds nobody back any more, even if it is still there.
    #[schemars(extend("pattern" = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", "maxLength" = 20))]
    pub until: Time,
    /// The migration it is open for.
    pub migration: WindowMigration,
    /// The quotas that may be raised while it is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub quotas: Vec<WindowQuota>,
}

/// The migration a window is open for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowMigration {
    /// Name of the VirtualMachineInstanceMigration.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its uid.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// Name of the VirtualMachineInstance.
    #[schemars(length(min = 1, max = 253))]
    pub vmi: String,
}

/// A quota that may be raised.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowQuota {
    /// Name of the ResourceQuota.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its uid.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// The most that `status.hard` of these keys may be raised to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = rules::MAX_KEYS))]
    pub raise: BTreeMap<String, Quantity>,
}
