//! What pods get besides what Sluice gives them, as charts offer it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, EnvVar, TopologySpreadConstraint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::names;

use crate::exact::Exact;

/// What pods get besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodOptions {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub affinity: Exact<Affinity>,
    /// How pods are spread. One without a selector is about the pods of its component. None: over nodes, where it can be.
    pub topology_spread: Vec<Exact<TopologySpreadConstraint>>,
    /// Arguments after those that follow from the options.
    pub extra_args: PerComponent<Vec<String>>,
    /// Variables after Sluice's own.
    pub extra_env: PerComponent<Vec<Exact<EnvVar>>>,
    /// `dnsPolicy` of the webhook's pods.
    pub webhook_dns_policy: Option<DnsPolicy>,
}

/// As a pod has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DnsPolicy {
    /// That of the node.
    Default,
    /// That of the cluster, unless a pod has the network of its node.
    ClusterFirst,
    /// That of the cluster.
    ClusterFirstWithHostNet,
}

/// Something for the pods of each Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PerComponent<T: Default> {
    /// Of the controller.
    pub controller: T,
    /// Of the webhook.
    pub webhook: T,
    /// Of the operator.
    pub operator: T,
}

impl<T: Default> PerComponent<T> {
    pub(crate) fn of(&self, component: &str) -> &T {
        match component {
            names::CONTROLLER => &self.controller,
            names::WEBHOOK => &self.webhook,
            _ => &self.operator,
        }
    }
}
