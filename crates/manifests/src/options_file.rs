//! Options as a file: what `sluice render --options`, the operator and the values of the chart have in common.

mod parts;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, EnvVar, Toleration, TopologySpreadConstraint};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_engine::NamespacePattern;

use crate::exact::Exact;
use crate::options::{
    Gating, InstallOptions, Installation, Monitoring, NamespaceUse, Naming, Platform, WebhookClient,
};
use crate::platform_accounts::PlatformAccounts;
use crate::pod_options::{PerComponent, PodOptions};
use crate::resources::{Given, Resources};
use crate::validate::{InvalidOption, OWN_LABELS};

pub use parts::TolerationEntry;
use parts::{CertManagerFile, ImageFile, NetworkPolicyFile, SecretName, WebhookFile};

/// What a file says; what it leaves out, or says to be null, is as before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OptionsFile {
    /// The image of the operator; its operands have that of its own pod.
    #[serde(skip_serializing_if = "is_default")]
    image: ImageFile,
    /// Secrets that the image is pulled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_pull_secrets: Option<Vec<SecretName>>,
    /// What installs.
    #[serde(skip_serializing_if = "Option::is_none")]
    installation: Option<Installation>,
    /// What the cluster asks of pods beyond Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<Platform>,
    /// Replicas of each Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9))]
    replicas: Option<u32>,
    /// What the containers ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Given>")]
    resources: Option<Resources>,
    /// Labels of the nodes that all pods run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_selector: Option<BTreeMap<String, String>>,
    /// Taints that all pods tolerate.
    #[serde(skip_serializing_if = "Option::is_none")]
    tolerations: Option<Vec<TolerationEntry>>,
    /// Affinity of all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity: Option<Exact<Affinity>>,
    /// How pods are spread, in place of over nodes; one without a selector is about the pods of its component.
    #[serde(skip_serializing_if = "Option::is_none")]
    topology_spread_constraints: Option<Vec<Exact<TopologySpreadConstraint>>>,
    /// Labels of all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("propertyNames" = { "not": { "enum": OWN_LABELS } }))]
    pod_labels: Option<BTreeMap<String, String>>,
    /// Annotations of all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_annotations: Option<BTreeMap<String, String>>,
    /// Labels of all objects but CRDs and what gates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("propertyNames" = { "not": { "enum": OWN_LABELS } }))]
    common_labels: Option<BTreeMap<String, String>>,
    /// Arguments after those that follow from the options.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_args: Option<PerComponent<Vec<String>>>,
    /// Variables of the containers after Sluice's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_env: Option<PerComponent<Vec<Exact<EnvVar>>>>,
    /// Priority class of all pods; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_class_name: Option<String>,
    /// Others run in the namespace too: no ResourceQuota there permits the priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_namespace: Option<bool>,
    /// How API servers reach the webhook.
    #[serde(skip_serializing_if = "is_default")]
    webhook: WebhookFile,
    /// Who gates pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    gating: Option<Gating>,
    /// Namespaces whose pods are never gated, in place of the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), inner(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,62}\*?$")))]
    exempt_namespaces: Option<Vec<String>>,
    /// ServiceAccounts (`namespace:name`) whose pods may name their node, in place of the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(inner(regex(pattern = r"^[a-z0-9.-]+:[a-z0-9.-]+$")))]
    platform_accounts: Option<Vec<String>>,
    /// Usernames that may take the gate from pods, besides the controller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(inner(length(min = 1)))]
    allowed_gate_removers: Option<Vec<String>>,
    /// How often an address with several API servers behind it is asked for each raise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    balancer_proofs: Option<u32>,
    /// What the NetworkPolicies let through.
    #[serde(skip_serializing_if = "is_default")]
    network_policy: NetworkPolicyFile,
    /// The serving certificate comes from cert-manager.
    #[serde(skip_serializing_if = "is_default")]
    cert_manager: CertManagerFile,
    /// What is made for Prometheus' operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    monitoring: Option<Monitoring>,
    /// By which names others find the installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Naming>,
    /// The operator writes again what one of a newer version has written: to go back to its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_downgrade: Option<bool>,
}

/// A text that is no file of options.
#[derive(Debug, thiserror::Error)]
#[error("{0}: correct the file; docs/install.md has the names of all options")]
pub struct NotOptions(String);

impl OptionsFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is no YAML, or has a field that nothing knows: it would otherwise have no effect, unseen.
    pub fn parse(text: &str) -> Result<Self, NotOptions> {
        // A file of comments alone is null.
        let read: Result<Option<Self>, _> = serde_saphyr::from_str(text);
        // What follows the first line shows the line of the file.
        let first_line = |error: serde_saphyr::Error| {
            let said = error.to_string().lines().next().unwrap_or_default().to_owned();
            NotOptions(
                option_at_fault(text).map_or_else(|| said.clone(), |option| format!("{option}: {said}")),
            )
        };
        if text.trim().is_empty() {
            Ok(Self::default())
        } else {
            Ok(read.map_err(first_line)?.unwrap_or_default())
        }
    }

    /// `base` with what the file says.
    ///
    /// # Errors
    /// When a text of the file is not of the form that it must have.
    pub fn over(self, base: InstallOptions) -> Result<InstallOptions, InvalidOption> {
        let exempt = self.exempt_namespaces.map(|texts| namespaces(&texts)).transpose()?;
        let accounts = self.platform_accounts.map(|texts| accounts(&texts)).transpose()?;
        let secrets = self.image_pull_secrets;
        let namespace_use = match self.shared_namespace {
            Some(true) => NamespaceUse::Shared,
            Some(false) | None => base.namespace_use,
        };
        let tolerations = self.tolerations.map(|all| all.into_iter().map(Toleration::from).collect());
        let priority_class =
            self.priority_class_name.map(|class| Some(class).filter(|class| !class.is_empty()));
        Ok(InstallOptions {
            namespace_use,
            installation: self.installation.unwrap_or(base.installation),
            platform: self.platform.unwrap_or(base.platform),
            pull_policy: self.image.pull_policy.unwrap_or(base.pull_policy),
            image: self.image.reference().unwrap_or(base.image),
            image_pull_secrets: secrets
                .map_or(base.image_pull_secrets, |all| all.into_iter().map(|secret| secret.name).collect()),
            tolerations: tolerations.unwrap_or(base.tolerations),
            node_selector: self.node_selector.unwrap_or(base.node_selector),
            resources: self.resources.unwrap_or(base.resources),
            pods: PodOptions {
                labels: self.pod_labels.unwrap_or(base.pods.labels),
                annotations: self.pod_annotations.unwrap_or(base.pods.annotations),
                affinity: self.affinity.unwrap_or(base.pods.affinity),
                topology_spread: self.topology_spread_constraints.unwrap_or(base.pods.topology_spread),
                extra_args: self.extra_args.unwrap_or(base.pods.extra_args),
                extra_env: self.extra_env.unwrap_or(base.pods.extra_env),
                webhook_dns_policy: self.webhook.dns_policy.or(base.pods.webhook_dns_policy),
            },
            common_labels: self.common_labels.unwrap_or(base.common_labels),
            webhook_port: self.webhook.port.unwrap_or(base.webhook_port),
            host_network: self.webhook.host_network.unwrap_or(base.host_network),
            webhook_client: self.webhook.url.map_or(base.webhook_client, WebhookClient::Url),
            balancer_proofs: self.balancer_proofs.unwrap_or(base.balancer_proofs),
            replicas: self.replicas.unwrap_or(base.replicas),
            api_server_ports: self.network_policy.api_server_ports.unwrap_or(base.api_server_ports),
            api_server_cidrs: self.network_policy.api_server_cidrs.unwrap_or(base.api_server_cidrs),
            metrics_from: self.network_policy.metrics_from.unwrap_or(base.metrics_from),
            exempt_namespaces: exempt.unwrap_or(base.exempt_namespaces),
            gating: self.gating.unwrap_or(base.gating),
            platform_accounts: accounts.unwrap_or(base.platform_accounts),
            further_gate_removers: self.allowed_gate_removers.unwrap_or(base.further_gate_removers),
            cert_manager: self.cert_manager.issuer_ref.or(base.cert_manager),
            monitoring: self.monitoring.unwrap_or(base.monitoring),
            naming: self.names.unwrap_or(base.naming),
            allow_downgrade: self.allow_downgrade.unwrap_or(base.allow_downgrade),
            priority_class: priority_class.unwrap_or(base.priority_class),
            ..base
        })
    }

    /// What the operator has to be told: the options that differ from the default. The reference of the image is not among
    /// them, for the operator reads it from its own pod.
    #[must_use]
    pub fn of(options: &InstallOptions) -> Self {
        let (all, default) = (Self::all(options), Self::all(&InstallOptions::default()));
        let [is, was] = [&all, &default].map(|file| serde_json::to_value(file).unwrap_or_default());
        // What of a file is left out can be read as a file.
        different(is, &was).map_or_else(Self::default, |is| serde_json::from_value(is).unwrap_or(all))
    }

    fn all(options: &InstallOptions) -> Self {
        let url = match &options.webhook_client {
            WebhookClient::Service => None,
            WebhookClient::Url(url) => Some(url.clone()),
        };
        let secret = |name: &String| SecretName { name: name.clone() };
        let accounts = options.platform_accounts.to_string();
        let accounts = accounts.split(',').filter(|_| !accounts.is_empty()).map(str::to_owned).collect();
        Self {
            image: ImageFile { pull_policy: Some(options.pull_policy), ..ImageFile::default() },
            image_pull_secrets: Some(options.image_pull_secrets.iter().map(secret).collect()),
            installation: Some(options.installation),
            platform: Some(options.platform),
            replicas: Some(options.replicas),
            resources: Some(options.resources.clone()),
            node_selector: Some(options.node_selector.clone()),
            tolerations: Some(options.tolerations.iter().map(TolerationEntry::from).collect()),
            affinity: Some(options.pods.affinity.clone()),
            topology_spread_constraints: Some(options.pods.topology_spread.clone()),
            pod_labels: Some(options.pods.labels.clone()),
            pod_annotations: Some(options.pods.annotations.clone()),
            common_labels: Some(options.common_labels.clone()),
            extra_args: Some(options.pods.extra_args.clone()),
            extra_env: Some(options.pods.extra_env.clone()),
            priority_class_name: Some(options.priority_class.clone().unwrap_or_default()),
            shared_namespace: Some(options.namespace_use == NamespaceUse::Shared),
            webhook: WebhookFile {
                port: Some(options.webhook_port),
                host_network: Some(options.host_network),
                dns_policy: options.pods.webhook_dns_policy,
                url,
            },
            gating: Some(options.gating),
            exempt_namespaces: Some(options.exempt_namespaces.iter().map(ToString::to_string).collect()),
            platform_accounts: Some(accounts),
            allowed_gate_removers: Some(options.further_gate_removers.clone()),
            balancer_proofs: Some(options.balancer_proofs),
            network_policy: NetworkPolicyFile {
                api_server_ports: Some(options.api_server_ports.clone()),
                api_server_cidrs: Some(options.api_server_cidrs.clone()),
                metrics_from: Some(options.metrics_from.clone()),
            },
            cert_manager: CertManagerFile { issuer_ref: options.cert_manager.clone() },
            monitoring: Some(options.monitoring.clone()),
            names: Some(options.naming),
            allow_downgrade: Some(options.allow_downgrade),
        }
    }

    /// As YAML.
    #[must_use]
    pub fn text(&self) -> String {
        if *self == Self::default() {
            return "{}\n".to_owned();
        }
        // Texts, numbers, lists and maps of them always have a form in YAML.
        let text = serde_saphyr::to_string(self).unwrap_or_default();
        format!("{}\n", text.trim_end())
    }

    /// The JSON schema of a file, closed, without references.
    #[must_use]
    pub fn schema() -> Value {
        let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
        settings.into_generator().into_root_schema_for::<Self>().to_value()
    }
}

/// The first option that cannot be read from a file of its own either: an error of YAML tells the line alone. `None` if
/// the text is no map.
fn option_at_fault(text: &str) -> Option<String> {
    let options: Map<String, Value> = serde_saphyr::from_str(text).ok()?;
    let is_at_fault = |(option, value): &(&String, &Value)| {
        let alone = serde_saphyr::to_string(&BTreeMap::from([(*option, *value)]));
        alone.is_ok_and(|alone| serde_saphyr::from_str::<OptionsFile>(&alone).is_err())
    };
    options.iter().find(is_at_fault).map(|(option, _)| option.clone())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Of maps the keys that differ from the default; `None` if nothing does.
fn different(is: Value, default: &Value) -> Option<Value> {
    match (is, default) {
        (Value::Object(is), Value::Object(default)) => {
            let of = |key: &String| default.get(key).unwrap_or(&Value::Null);
            let left =
                is.into_iter().filter_map(|(key, value)| Some((key.clone(), different(value, of(&key))?)));
            Some(Value::Object(left.collect()))
                .filter(|left| left.as_object().is_some_and(|left| !left.is_empty()))
        }
        (is, default) => (is != *default).then_some(is),
    }
}

fn namespaces(texts: &[String]) -> Result<Vec<NamespacePattern>, InvalidOption> {
    let read = |text: &String| {
        text.parse::<NamespacePattern>()
            .map_err(|error| not_so("exemptNamespaces (--exempt-namespaces)", &error))
    };
    texts.iter().map(read).collect()
}

fn accounts(texts: &[String]) -> Result<PlatformAccounts, InvalidOption> {
    let read = texts.join(",").parse::<PlatformAccounts>();
    read.map_err(|error: String| not_so("platformAccounts (--platform-accounts)", &error))
}

fn not_so(field: &'static str, error: &dyn std::fmt::Display) -> InvalidOption {
    InvalidOption { field, problem: error.to_string(), remedy: "correct it, or leave the option out" }
}

#[cfg(test)]
mod tests;
