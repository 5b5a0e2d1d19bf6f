//! `AAQJobQueueConfig`: upstream's bookkeeping object of a namespace (`docs/predecessors.md`, *The gate of AAQ*).
//!
//! Kept readable for those who look at it. Nothing that an object of this kind says makes Sluice release a pod:
//! a tenant may be able to write it.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec`: always empty.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "aaq.kubevirt.io",
    version = "v1alpha1",
    kind = "AAQJobQueueConfig",
    plural = "aaqjobqueueconfigs",
    shortname = "aaqjqc",
    shortname = "aaqjqcs",
    namespaced,
    status = "AAQJobQueueConfigStatus",
    derive = "PartialEq",
    doc = "What the quota controller of a namespace is releasing; for reading only."
)]
pub struct AAQJobQueueConfigSpec {}

/// `status`: which pods are being released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AAQJobQueueConfigStatus {
    /// Whether a quota controller still has to count the released pods, by lock name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub controller_lock: BTreeMap<String, bool>,
    /// Names of the pods that are being released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods_in_job_queue: Vec<String>,
}
