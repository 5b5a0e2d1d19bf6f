//! `HeadroomProbe`: what Sluice asks an API server to create, in a dry run, to learn whether it knows of a raised quota.
//!
//! No object of this kind is ever stored. Two things rest on its name: the admission policy `sluice-headroom-lock` denies a
//! probe that names the mark it sees, and `count/headroomprobes.quota.sluice.dev` is the key that marks a raised quota.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec`: what the API server is asked for.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "quota.sluice.dev",
    version = "v1alpha1",
    kind = "HeadroomProbe",
    plural = "headroomprobes",
    namespaced,
    derive = "PartialEq",
    doc = "Asks an API server, in a dry run, whether it knows of a raised ResourceQuota. None is ever stored."
)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomProbeSpec {
    /// The mark that the answer has to know of; 0 asks whether the admission policy is in force.
    #[schemars(range(min = 0))]
    pub mark: i64,
}
