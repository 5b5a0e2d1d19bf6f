//! Values of the chart as options of an installation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;
use sluice_operator::{Gating, InstallOptions, NamespaceUse, Platform, PullPolicy, Resources};

/// All of `values.yaml`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Values {
    image: Image,
    image_pull_secrets: Vec<Secret>,
    platform: String,
    replicas: u32,
    resources: Resources,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Toleration>,
    priority_class_name: String,
    shared_namespace: bool,
    webhook: Webhook,
    gating: String,
    exempt_namespaces: Option<Vec<String>>,
    platform_accounts: Option<Vec<String>>,
    balancer_proofs: u32,
    network_policy: NetworkPolicy,
    pub crds: Crds,
    pub rancher: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Image {
    registry: String,
    repository: String,
    tag: String,
    digest: String,
    pull_policy: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Webhook {
    port: u16,
    host_network: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NetworkPolicy {
    api_server_ports: Vec<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crds {
    pub enabled: bool,
}

impl Default for Values {
    fn default() -> Self {
        let options = InstallOptions::default();
        Self {
            image: Image::default(),
            image_pull_secrets: Vec::new(),
            platform: "generic".to_owned(),
            replicas: options.replicas,
            resources: options.resources,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class_name: options.priority_class.unwrap(),
            shared_namespace: false,
            webhook: Webhook::default(),
            gating: options.gating.to_string(),
            exempt_namespaces: None,
            platform_accounts: None,
            balancer_proofs: options.balancer_proofs,
            network_policy: NetworkPolicy { api_server_ports: options.api_server_ports },
            crds: Crds { enabled: true },
            rancher: false,
        }
    }
}

impl Default for Image {
    fn default() -> Self {
        let image = InstallOptions::default().image;
        let (path, tag) = image.rsplit_once(':').unwrap();
        assert_eq!(tag, env!("CARGO_PKG_VERSION"), "that of the chart");
        let (registry, repository) = path.split_once('/').unwrap();
        Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: String::new(),
            digest: String::new(),
            pull_policy: PullPolicy::default().to_string(),
        }
    }
}

impl Default for Webhook {
    fn default() -> Self {
        Self { port: InstallOptions::default().webhook_port, host_network: false }
    }
}

impl Image {
    fn reference(&self) -> String {
        let Self { registry, repository, tag, digest, .. } = self;
        let registry = if registry.is_empty() { String::new() } else { format!("{registry}/") };
        let tag = if tag.is_empty() && digest.is_empty() { env!("CARGO_PKG_VERSION") } else { tag };
        let tag = if tag.is_empty() { String::new() } else { format!(":{tag}") };
        let digest = if digest.is_empty() { String::new() } else { format!("@{digest}") };
        format!("{registry}{repository}{tag}{digest}")
    }
}

impl Values {
    /// What `sluice render` makes of the same.
    pub fn options(&self, namespace: &str) -> InstallOptions {
        let default = InstallOptions::default();
        let exempt = self.exempt_namespaces.as_ref();
        let accounts = self.platform_accounts.as_ref();
        let options = InstallOptions {
            namespace: namespace.to_owned(),
            namespace_use: if self.shared_namespace { NamespaceUse::Shared } else { NamespaceUse::Own },
            image: self.image.reference(),
            pull_policy: match self.image.pull_policy.as_str() {
                "Always" => PullPolicy::Always,
                "Never" => PullPolicy::Never,
                _ => PullPolicy::IfNotPresent,
            },
            image_pull_secrets: self.image_pull_secrets.iter().map(|secret| secret.name.clone()).collect(),
            platform: if self.platform == "openshift" { Platform::Openshift } else { Platform::Generic },
            replicas: self.replicas,
            resources: self.resources.clone(),
            node_selector: self.node_selector.clone(),
            tolerations: self.tolerations.clone(),
            priority_class: Some(self.priority_class_name.clone()).filter(|class| !class.is_empty()),
            webhook_port: self.webhook.port,
            host_network: self.webhook.host_network,
            gating: if self.gating == "webhook" { Gating::Webhook } else { Gating::Policy },
            exempt_namespaces: exempt.map_or_else(
                || default.exempt_namespaces.clone(),
                |exempt| exempt.iter().map(|name| name.parse().unwrap()).collect(),
            ),
            platform_accounts: accounts.map_or_else(
                || default.platform_accounts.clone(),
                |accounts| accounts.join(",").parse().unwrap(),
            ),
            balancer_proofs: self.balancer_proofs,
            api_server_ports: self.network_policy.api_server_ports.clone(),
            ..default
        };
        options.validate().unwrap();
        options
    }
}
