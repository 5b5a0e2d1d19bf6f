//! `GateProbe`: what Sluice asks an API server to create, in a dry run, to learn who gates pods there.
//!
//! It has the fields of a pod that the gate looks at, in the same places, so that the rules for pods hold for it word for
//! word; and it is of the cluster, so that it does not depend on which namespaces are targeted. None is ever stored.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec`: the part of a pod's that the gate looks at.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "quota.sluice.dev",
    version = "v1alpha1",
    kind = "GateProbe",
    plural = "gateprobes",
    derive = "PartialEq",
    doc = "Asks an API server, in a dry run, who gates pods there. None is ever stored."
)]
#[serde(rename_all = "camelCase")]
pub struct GateProbeSpec {
    /// As in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub scheduling_gates: Option<Vec<ProbeGate>>,
    /// As in a pod: with a node it cannot be gated and has to be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// `webhook` if the webhook has set the gate; the admission policy does not say anything here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gated_by: Option<String>,
}

/// As in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct ProbeGate {
    /// Its name.
    pub name: String,
}
