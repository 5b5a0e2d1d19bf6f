//! The parts of a file of options: what it says of the image, the webhook, networks, certificates and tolerations.

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exact::Exact;
use crate::options::{IssuerRef, PullPolicy};
use crate::pod_options::DnsPolicy;

/// Registry and repository of the image that `make image` builds.
const DEFAULT_REGISTRY: &str = "localhost";
const DEFAULT_REPOSITORY: &str = "sluice";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ImageFile {
    /// Empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?)?$"))]
    pub(super) registry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^[a-z0-9]+([._/-]+[a-z0-9]+)*$"))]
    pub(super) repository: Option<String>,
    /// Empty: the version of Sluice, unless there is a digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"))]
    pub(super) tag: Option<String>,
    /// `sha256:…`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^(sha256:[0-9a-f]{64})?$"))]
    pub(super) digest: Option<String>,
    /// When nodes pull it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pull_policy: Option<PullPolicy>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretName {
    #[schemars(extend("minLength" = 1))]
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WebhookFile {
    /// Port that the webhook listens on: not those of probes, metrics and the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65535), extend("not" = { "enum": [8081, 8444, 8445] }))]
    pub(super) port: Option<u16>,
    /// Its pods have the network of their nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host_network: Option<bool>,
    /// `dnsPolicy` of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dns_policy: Option<DnsPolicy>,
    /// Where API servers reach it, if not through its Service: `https://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^https://"))]
    pub(super) url: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct NetworkPolicyFile {
    /// Ports of API servers, behind their Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), inner(range(min = 1, max = 65535)))]
    pub(super) api_server_ports: Option<Vec<u16>>,
    /// Addresses that API servers have, as CIDRs; empty: any.
    #[serde(rename = "apiServerCIDRs", skip_serializing_if = "Option::is_none")]
    #[schemars(inner(regex(pattern = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")))]
    pub(super) api_server_cidrs: Option<Vec<String>>,
    /// Who may connect to the port of the metrics, as `from` of a NetworkPolicy has it; empty: namespaces with Sluice's
    /// label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics_from: Option<Vec<Exact<NetworkPolicyPeer>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct CertManagerFile {
    /// The issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) issuer_ref: Option<IssuerRef>,
}

/// A toleration of a pod. The type of Kubernetes would ignore fields that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TolerationEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Exists", "Equal"]))]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute"]))]
    effect: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    toleration_seconds: Option<i64>,
}

impl From<TolerationEntry> for Toleration {
    fn from(entry: TolerationEntry) -> Self {
        let TolerationEntry { key, operator, value, effect, toleration_seconds } = entry;
        Self { key, operator, value, effect, toleration_seconds }
    }
}

impl From<&Toleration> for TolerationEntry {
    fn from(toleration: &Toleration) -> Self {
        let Toleration { key, operator, value, effect, toleration_seconds } = toleration.clone();
        Self { key, operator, value, effect, toleration_seconds }
    }
}

impl ImageFile {
    /// The reference, if something is said of it.
    pub(super) fn reference(&self) -> Option<String> {
        let Self { registry, repository, tag, digest, .. } = self;
        [registry, repository, tag, digest].into_iter().find(|part| part.is_some())?;
        let given = |part: &Option<String>| part.clone().filter(|text| !text.is_empty());
        let registry = match registry {
            Some(registry) if registry.is_empty() => String::new(),
            Some(registry) => format!("{registry}/"),
            None => format!("{DEFAULT_REGISTRY}/"),
        };
        let repository = given(repository).unwrap_or_else(|| DEFAULT_REPOSITORY.to_owned());
        let digest = given(digest).map(|digest| format!("@{digest}"));
        let version = || digest.is_none().then(|| env!("CARGO_PKG_VERSION").to_owned());
        let tag = given(tag).or_else(version).map(|tag| format!(":{tag}"));
        Some(format!("{registry}{repository}{}{}", tag.unwrap_or_default(), digest.unwrap_or_default()))
    }
}
