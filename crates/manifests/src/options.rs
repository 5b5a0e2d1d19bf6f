//! What may differ between installations.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::names;
use sluice_engine::NamespacePattern;

use crate::exact::Exact;
use crate::platform_accounts::PlatformAccounts;
use crate::pod_options::PodOptions;
use crate::resources::Resources;

/// How the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookClient {
    /// Through the Service of the installation.
    Service,
    /// At this address, `https://host:port` without a path; for a webhook that runs outside of the cluster.
    Url(String),
}

/// Who gates pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Gating {
    /// The API server by an admission policy, and behind it the webhook (Kubernetes 1.36).
    #[default]
    Policy,
    /// The webhook alone.
    Webhook,
}

/// As the flag `--gating` has it.
impl Display for Gating {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "policy",
            Self::Webhook => "webhook",
        })
    }
}

/// What installs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Installation {
    /// The operator: all of it is there as long as the operator is. Without an `AAQ` it makes one.
    #[default]
    Always,
    /// The `AAQ`, as with application-aware-quota: what the operator has made is there as long as an `AAQ` is.
    Cr,
}

/// As the flag `--installation` has it.
impl Display for Installation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::Cr => "cr",
        })
    }
}

/// What the cluster asks of pods beyond Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Nothing: pods name their user and groups.
    #[default]
    Generic,
    /// OpenShift: user and groups are given by the range of the namespace. The SecurityContextConstraints `restricted-v2`
    /// refuse any other number.
    Openshift,
}

/// Whose namespace the installation is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceUse {
    /// Its own, which is one of the objects.
    #[default]
    Created,
    /// Its own, made by others: by an administrator, or by `helm install --create-namespace`.
    Own,
    /// Shared with other workloads: there is no ResourceQuota that would hold for their pods too.
    Shared,
}

/// When the image is pulled, as a container has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Where the node has none of this name.
    #[default]
    IfNotPresent,
    /// Before each start.
    Always,
    /// Never: the nodes have it.
    Never,
}

/// As a container has it.
impl Display for PullPolicy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
            Self::Never => "Never",
        })
    }
}

/// By which names other programs find the installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// Sluice's own.
    #[default]
    Sluice,
    /// Those of application-aware-quota, for its own test suite.
    Aaq,
}

/// An issuer of cert-manager, as a `Certificate` names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuerRef {
    /// Its name.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
    /// `Issuer`, of the namespace of the installation, or `ClusterIssuer`, or a kind of another group.
    #[serde(default = "issuer_kind")]
    pub kind: String,
    /// Group of the kind.
    #[serde(default = "issuer_group")]
    pub group: String,
}

fn issuer_kind() -> String {
    "Issuer".to_owned()
}

fn issuer_group() -> String {
    names::CERT_MANAGER_GROUP.to_owned()
}

/// What is made for Prometheus' operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Monitoring {
    /// A `ServiceMonitor`, with an account that may see the metrics and nothing else.
    pub service_monitor: bool,
    /// A `PrometheusRule` with alerts.
    pub rules: bool,
    /// Labels of both, by which a Prometheus selects them.
    pub labels: BTreeMap<String, String>,
}

/// What may differ between installations.
#[derive(Clone, Debug, PartialEq)]
pub struct InstallOptions {
    /// Namespace of everything that has one.
    pub namespace: String,
    /// Whose that is.
    pub namespace_use: NamespaceUse,
    /// What installs.
    pub installation: Installation,
    /// What the cluster asks of pods.
    pub platform: Platform,
    /// Image of the operator. Its operands have the image that its own pod has.
    pub image: String,
    /// When it is pulled.
    pub pull_policy: PullPolicy,
    /// Names of the Secrets that it is pulled with.
    pub image_pull_secrets: Vec<String>,
    /// Taints that all pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Labels of the nodes that all pods run on.
    pub node_selector: BTreeMap<String, String>,
    /// What the containers ask for.
    pub resources: Resources,
    /// What pods get besides.
    pub pods: PodOptions,
    /// Labels of all objects but CRDs and what gates; Sluice's own win.
    pub common_labels: BTreeMap<String, String>,
    /// Port that the webhook listens on.
    pub webhook_port: u16,
    /// The webhook's pods have the addresses of their nodes, for API servers that reach no pods.
    pub host_network: bool,
    /// How often an address with several API servers behind it is asked for a proof; 0: such addresses are not trusted.
    pub balancer_proofs: u32,
    /// Leases and addresses of API servers are read by roles of the cluster, and not in their two namespaces alone: then all
    /// objects with a namespace are in that of the installation, and a kustomization may replace it.
    pub reads_leases_everywhere: bool,
    /// Replicas of each Deployment.
    pub replicas: u32,
    /// How the API server reaches the webhook.
    pub webhook_client: WebhookClient,
    /// PEM of the authorities that the API server trusts when it calls the webhook. `None`: the operator fills it in, and
    /// until then the API server refuses what the webhook should see.
    pub ca_bundle: Option<String>,
    /// The segment before every path of the webhook; as `ca_bundle`.
    pub webhook_path: Option<String>,
    /// Ports of API servers, to which the pods may connect. A NetworkPolicy judges the port behind the Service.
    pub api_server_ports: Vec<u16>,
    /// Addresses that API servers have, as CIDRs. Empty: any.
    pub api_server_cidrs: Vec<String>,
    /// Who may connect to the port of the metrics. Empty: namespaces with [`names::MONITORING_LABEL`].
    pub metrics_from: Vec<Exact<NetworkPolicyPeer>>,
    /// Namespaces whose pods are gated.
    pub namespace_selector: LabelSelector,
    /// Namespaces whose pods are never gated, whatever `namespace_selector` says, besides that of the installation.
    pub exempt_namespaces: Vec<NamespacePattern>,
    /// Who gates pods.
    pub gating: Gating,
    /// Accounts whose pods may name their node: those are let in without a gate.
    pub platform_accounts: PlatformAccounts,
    /// Username of KubeVirt's controller, if the targets of local migrations need no gate: VMs are charged for their guests,
    /// so a further pod of one that runs takes nothing, whatever its size. `None`: targets are gated as all other pods.
    pub lets_in_targets_of: Option<String>,
    /// Usernames that may take the gate from a pod, besides the controller's.
    pub further_gate_removers: Vec<String>,
    /// Who issues the serving certificate. `None`: the operator, by an authority of its own.
    pub cert_manager: Option<IssuerRef>,
    /// What Prometheus' operator gets.
    pub monitoring: Monitoring,
    /// By which names others find the installation.
    pub naming: Naming,
    /// The operator writes again what one of a newer version has written.
    pub allow_downgrade: bool,
    /// Priority class of the pods. With a class of the system there is a ResourceQuota that permits it, because
    /// some clusters ask for one.
    pub priority_class: Option<String>,
}

impl Default for InstallOptions {
    fn default() -> Self {
        Self {
            namespace: names::INSTALL_NAMESPACE.to_owned(),
            namespace_use: NamespaceUse::default(),
            installation: Installation::default(),
            platform: Platform::default(),
            pull_policy: PullPolicy::default(),
            image_pull_secrets: Vec::new(),
            tolerations: Vec::new(),
            node_selector: BTreeMap::new(),
            resources: Resources::default(),
            pods: PodOptions::default(),
            common_labels: BTreeMap::new(),
            webhook_port: names::WEBHOOK_PORT,
            host_network: false,
            balancer_proofs: 0,
            reads_leases_everywhere: false,
            image: format!("localhost/sluice:{}", env!("CARGO_PKG_VERSION")),
            replicas: 2,
            webhook_client: WebhookClient::Service,
            ca_bundle: None,
            webhook_path: None,
            api_server_ports: vec![443, 6443, 8443],
            api_server_cidrs: Vec::new(),
            metrics_from: Vec::new(),
            namespace_selector: default_namespace_selector(),
            exempt_namespaces: default_exempt_namespaces(),
            gating: Gating::default(),
            platform_accounts: PlatformAccounts::default(),
            lets_in_targets_of: None,
            further_gate_removers: Vec::new(),
            cert_manager: None,
            monitoring: Monitoring::default(),
            naming: Naming::default(),
            allow_downgrade: false,
            priority_class: Some("system-cluster-critical".to_owned()),
        }
    }
}

impl InstallOptions {
    /// Usernames that may take the gate from a pod. Where the `AAQ` installs, the operator releases what waits when it goes.
    #[must_use]
    pub fn gate_removers(&self) -> Vec<String> {
        let removes = self.installation == Installation::Cr;
        let operator = removes.then(|| names::operator_username(&self.namespace));
        let further = self.further_gate_removers.iter().cloned();
        [names::controller_username(&self.namespace)].into_iter().chain(operator).chain(further).collect()
    }
}

/// The namespaces whose pods are gated when the `AAQ` does not say which (`docs/predecessors.md`, *API of AAQ*).
pub fn default_namespace_selector() -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: names::TARGET_LABEL.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        match_labels: None,
    }
}

/// Namespaces of what a cluster needs to run pods at all: Kubernetes and OpenShift, networks, storage, KubeVirt. A pod that
/// waits there may be the one that others wait for. GitOps tools and monitoring are left out: pods run without them, and a
/// name such as `monitoring` may be a tenant's.
#[must_use]
pub fn default_exempt_namespaces() -> Vec<NamespacePattern> {
    let reserved = ["kube-", "openshift-"].map(|start| NamespacePattern::Starting(start.into()));
    let named = [
        "calico-apiserver",
        "calico-system",
        "cattle-fleet-local-system",
        "cattle-fleet-system",
        "cattle-system",
        "cdi",
        "cert-manager",
        "cilium",
        "cilium-system",
        "harvester-system",
        "kubevirt",
        "kubevirt-hyperconverged",
        "longhorn-system",
        "metallb-system",
        "openebs",
        "rook-ceph",
        "tigera-operator",
        "trident",
    ];
    reserved.into_iter().chain(named.map(NamespacePattern::named)).collect()
}
