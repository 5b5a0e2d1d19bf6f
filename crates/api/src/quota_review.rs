//! `QuotaReview`: asks the leading controller why something waits. It is answered at admission, like a
//! SelfSubjectAccessReview, and never stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rules;

/// `spec`: what is asked about, in the namespace of the object. Exactly one field is set.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "quota.sluice.dev",
    version = "v1alpha1",
    kind = "QuotaReview",
    plural = "quotareviews",
    namespaced,
    status = "QuotaReviewStatus",
    derive = "PartialEq",
    doc = "Asks, in a dry run, why a pod, a virtual machine or a quota of the namespace waits. None is ever stored."
)]
#[serde(rename_all = "camelCase")]
pub struct QuotaReviewSpec {
    /// Name of a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub pod: Option<String>,
    /// Name of an ApplicationAwareResourceQuota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub quota: Option<String>,
    /// Name of an ApplicationAwareClusterResourceQuota that selects the namespace. Of other namespaces nothing is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster_quota: Option<String>,
    /// Name of a VirtualMachineInstance, which is that of its VirtualMachine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub virtual_machine: Option<String>,
}

/// `status`: the answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaReviewStatus {
    /// Whether something waits.
    pub held: bool,
    /// The answer for people, as `sluice why` prints it.
    pub text: String,
    /// Sentences that `text` begins with, about a virtual machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<String>,
    /// The answer for programs, as `sluice why -o json` prints it (apiVersion cli.sluice.dev/v1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "rules::any_objects")]
    pub explanations: Vec<Map<String, Value>>,
    /// The leader knows no such object in the namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_found: bool,
    /// Names that are near to one that was not found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// Who answered.
    pub source: QuotaReviewSource,
}

/// Who answered, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaReviewSource {
    /// The pod that leads.
    pub leader: String,
    /// When it answered, by the clock of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}
