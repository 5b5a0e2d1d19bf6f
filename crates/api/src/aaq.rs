//! `AAQ`: the configuration of an installation, one per cluster (`docs/predecessors.md`, *API of AAQ*).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Container, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec`: every field is optional.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "aaq.kubevirt.io",
    version = "v1alpha1",
    kind = "AAQ",
    plural = "aaqs",
    shortname = "aaq",
    shortname = "aaqs",
    status = "AaqStatus",
    derive = "PartialEq",
    doc = "The configuration of an installation of application-aware quotas.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Gate",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Gating")].reason"#
    ),
    printcolumn(
        name = "VMs",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="VirtualMachines")].reason"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AaqSpec {
    /// Lifetimes of the certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config: Option<CertConfig>,
    /// How pods are counted, and which kinds of quota there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<AaqConfiguration>,
    /// When images are pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Where the webhook and the controller run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra: Option<NodePlacement>,
    /// Namespaces whose pods are gated. Absent: those with the label `application-aware-quota/enable-gating`.
    /// Empty: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Priority class of the webhook and the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// TLS versions and ciphers of the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
    /// Accepted for compatibility; nothing runs as a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<NodePlacement>,
}

/// Lifetimes of the certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct CertConfig {
    /// Of the certificate authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CertLifetime>,
    /// Of the serving certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<CertLifetime>,
}

/// Lifetime of one certificate, in Go's notation of durations (`48h`, `20m0s`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertLifetime {
    /// How long the certificate is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How long before its end it is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
}

/// How pods are counted, and which kinds of quota there are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AaqConfiguration {
    /// Whether there are quotas that span namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_application_aware_cluster_resource_quota: Option<bool>,
    /// Containers with evaluators that count pods in their own way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar_evaluators: Option<Vec<Container>>,
    /// How virtual machines are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmi_calculator_configuration: Option<VmiCalculatorConfiguration>,
}

/// How virtual machines are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmiCalculatorConfiguration {
    /// The calculator's name.
    #[serde(default = "default_calculator", skip_serializing_if = "Option::is_none")]
    pub config_name: Option<VmiCalculator>,
    /// Another spelling of `configName`. If it is set, it counts, for `configName` has a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmi_calc_config_name: Option<VmiCalculator>,
}

fn default_calculator() -> Option<VmiCalculator> {
    Some(VmiCalculator::DedicatedVirtualResources)
}

/// A way to count a virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum VmiCalculator {
    /// What its launcher pod takes, once for all that it has.
    VmiPodUsage,
    /// CPUs and memory of the guest, charged to `requests.*` and `limits.*`.
    VirtualResources,
    /// CPUs and memory of the guest, charged to the resource names that end in `/vmi`.
    #[default]
    DedicatedVirtualResources,
    /// Each of its pods is charged for itself.
    IgnoreVmiCalculator,
    /// What the container of the guest takes in its launcher pod, without the memory that KubeVirt adds.
    GuestEffectiveResources,
}

/// When images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// At each start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never.
    Never,
}

/// Where pods of the installation run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacement {
    /// Rules on nodes and on other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Labels that a node needs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
}

/// TLS versions and ciphers of the servers, in the shape of OpenShift's type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct TlsSecurityProfile {
    /// Versions and ciphers chosen one by one, with `type: Custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomTlsProfile>,
    /// Marks `type: Intermediate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intermediate: Option<NamedTlsProfile>,
    /// Marks `type: Modern`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modern: Option<NamedTlsProfile>,
    /// Marks `type: Old`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<NamedTlsProfile>,
    /// Which profile is in force.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<TlsProfileType>,
}

/// A profile that is known by its name alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct NamedTlsProfile {}

/// Versions and ciphers chosen one by one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomTlsProfile {
    /// OpenSSL names of the allowed ciphers.
    pub ciphers: Vec<String>,
    /// The lowest allowed version.
    #[serde(rename = "minTLSVersion")]
    pub min_tls_version: TlsVersion,
}

/// Name of a TLS profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TlsProfileType {
    /// Mozilla's "old" profile.
    Old,
    /// Mozilla's "intermediate" profile.
    Intermediate,
    /// Mozilla's "modern" profile.
    Modern,
    /// See [`TlsSecurityProfile::custom`].
    Custom,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.0.
    VersionTLS10,
    /// TLS 1.1.
    VersionTLS11,
    /// TLS 1.2.
    VersionTLS12,
    /// TLS 1.3.
    VersionTLS13,
}

/// `status`: how far the installation is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AaqStatus {
    /// What is true of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<AaqCondition>>,
    /// The version that was last found running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_version: Option<String>,
    /// The operator's own version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    /// One word for the state.
    // Free text, as upstream's operator kit has it; the words are `AaqPhase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The version that is being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
}

/// Values of `status.phase` that upstream writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AaqPhase {
    /// The installation is being made.
    Deploying,
    /// Everything runs.
    Deployed,
    /// Objects are being removed.
    Deleting,
    /// Objects are removed.
    Deleted,
    /// It could not be made.
    Error,
    /// A newer version is being installed.
    Upgrading,
}

impl AaqPhase {
    /// The word in `status.phase`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deploying => "Deploying",
            Self::Deployed => "Deployed",
            Self::Deleting => "Deleting",
            Self::Deleted => "Deleted",
            Self::Error => "Error",
            Self::Upgrading => "Upgrading",
        }
    }
}

/// One statement about the installation.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AaqCondition {
    /// When it was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// For programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// What the statement is about.
    #[serde(rename = "type")]
    pub type_: String,
}
