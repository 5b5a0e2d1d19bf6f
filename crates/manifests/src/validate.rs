//! Whether [`InstallOptions`] describe an installation that can run. Each refusal names the field and says what to do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Toleration;
use sluice_api::names;
use sluice_engine::Quantity;

use crate::options::{InstallOptions, IssuerRef, NamespaceUse, Platform, WebhookClient};
use crate::resources::Amounts;

/// More replicas than a cluster has use for are a typing error.
const MOST_REPLICAS: u32 = 9;
/// Below it only a process with a capability may listen, and the containers have none.
const LOWEST_PORT: u16 = 1024;
/// Ports that the webhook's process listens on besides, and that of the controller.
const TAKEN_PORTS: [u16; 3] = [names::ADMIN_PORT, names::METRICS_PORT, names::GROWTH_PORT];

/// The kubelet listens on it, at every address of its node.
const KUBELET_PORT: u16 = 10250;

/// Labels by which pods and objects of Sluice are found.
pub(crate) const OWN_LABELS: [&str; 4] = [
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/component",
    names::MANAGED_LABEL,
];

/// An option that cannot be.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{field}: {problem}: {remedy}")]
pub struct InvalidOption {
    /// As a file of options has it, and as the command line does.
    pub field: &'static str,
    pub problem: String,
    /// What to do.
    pub remedy: &'static str,
}

fn refuse(
    field: &'static str,
    problem: impl Into<String>,
    remedy: &'static str,
) -> Result<(), InvalidOption> {
    Err(InvalidOption { field, problem: problem.into(), remedy })
}

impl InstallOptions {
    /// Whether an installation with these options can run.
    ///
    /// # Errors
    /// The first option that cannot be, in the order of the fields.
    pub fn validate(&self) -> Result<(), InvalidOption> {
        namespace(&self.namespace, self.namespace_use)?;
        image(&self.image)?;
        if !(1..=MOST_REPLICAS).contains(&self.replicas) {
            let remedy = "give a number from 1 to 9; 2 keep the gate open while a node is drained";
            return refuse("replicas", format!("{} replicas", self.replicas), remedy);
        }
        self.check_webhook()?;
        self.check_pods()?;
        self.check_others()
    }

    /// How API servers reach the webhook.
    fn check_webhook(&self) -> Result<(), InvalidOption> {
        const PORT: &str = "webhook.port (--port)";
        if self.webhook_port < LOWEST_PORT {
            let remedy = "give one of 1024 to 65535";
            let problem =
                format!("{} is a port that only a privileged process may listen on", self.webhook_port);
            return refuse(PORT, problem, remedy);
        }
        if TAKEN_PORTS.contains(&self.webhook_port) {
            let problem = format!("{} is taken by probes, metrics or the controller", self.webhook_port);
            return refuse(PORT, problem, "give another one, such as 8443 or 9443");
        }
        if self.host_network && self.webhook_port == KUBELET_PORT {
            let problem = "10250 is the kubelet's on every node, and with host-network the webhook has the node's addresses";
            return refuse(PORT, problem, "give another one, such as 8443, or leave host-network out");
        }
        if self.host_network && self.platform == Platform::Openshift {
            let problem = "restricted-v2 of OpenShift refuses pods with the network of their node";
            let remedy = "leave it out: API servers of OpenShift reach pods";
            return refuse("webhook.hostNetwork (--host-network)", problem, remedy);
        }
        if let WebhookClient::Url(url) = &self.webhook_client
            && !url.starts_with("https://")
        {
            let problem = format!("API servers do not call {url:?}");
            return refuse(
                "webhook.url",
                problem,
                "write https://host:port, or leave it out for the Service",
            );
        }
        Ok(())
    }

    /// What pods are made of, and where they run.
    fn check_pods(&self) -> Result<(), InvalidOption> {
        for name in &self.image_pull_secrets {
            if !is_subdomain(name) {
                let remedy = "give the name of a Secret in the namespace of the installation";
                let problem = format!("{name:?} is no name of a Secret");
                return refuse("imagePullSecrets (--image-pull-secret)", problem, remedy);
            }
        }
        self.tolerations.iter().try_for_each(toleration)?;
        for (key, value) in &self.node_selector {
            if !is_label_key(key) || !is_label_value(value) {
                let remedy = "write key=value, like node-role.kubernetes.io/infra=";
                let problem = format!("{key:?}={value:?} is no label of a node");
                return refuse("nodeSelector (--node-selector)", problem, remedy);
            }
        }
        let pods = &self.pods;
        labels("podLabels", &pods.labels)?;
        labels("commonLabels", &self.common_labels)?;
        if let Some(key) = pods.annotations.keys().find(|key| !is_label_key(key)) {
            let remedy = "write [prefix/]name, like example.com/note";
            return refuse("podAnnotations", format!("{key:?} is no key of an annotation"), remedy);
        }
        let resources = &self.resources;
        let all = [&resources.controller, &resources.webhook, &resources.operator];
        all.into_iter().try_for_each(amounts)?;
        if let Some(class) = self.priority_class.as_ref().filter(|class| !is_subdomain(class)) {
            let remedy = "give the name of a PriorityClass, or nothing for none";
            return refuse("priorityClassName (--priority-class)", format!("{class:?} is no name"), remedy);
        }
        Ok(())
    }

    /// Who is spoken with, and who speaks.
    fn check_others(&self) -> Result<(), InvalidOption> {
        if self.api_server_ports.is_empty() || self.api_server_ports.contains(&0) {
            let remedy = "give the ports that API servers listen on, such as 6443";
            let problem = format!("{:?} lets pods reach no API server", self.api_server_ports);
            return refuse("networkPolicy.apiServerPorts (--api-server-port)", problem, remedy);
        }
        if let Some(cidr) = self.api_server_cidrs.iter().find(|cidr| !is_cidr(cidr)) {
            let remedy = "write address/length, like 10.0.0.0/24 or fd00::/64";
            return refuse(
                "networkPolicy.apiServerCIDRs",
                format!("{cidr:?} is no range of addresses"),
                remedy,
            );
        }
        if self.further_gate_removers.iter().any(String::is_empty) {
            return refuse("allowedGateRemovers", "a username is empty", "name it, or leave it out");
        }
        self.cert_manager.as_ref().map_or(Ok(()), issuer)?;
        for (key, value) in &self.monitoring.labels {
            if !is_label_key(key) || !is_label_value(value) {
                let problem = format!("{key:?}: {value:?} is no label");
                return refuse("monitoring.labels", problem, "take those that your Prometheus selects by");
            }
        }
        Ok(())
    }
}

/// Labels of a user, beside those by which Sluice and its Services find pods and objects.
fn labels(field: &'static str, labels: &BTreeMap<String, String>) -> Result<(), InvalidOption> {
    for (key, value) in labels {
        if !is_label_key(key) || !is_label_value(value) {
            return refuse(
                field,
                format!("{key:?}: {value:?} is no label"),
                "write key: value, like team: platform",
            );
        }
        if OWN_LABELS.contains(&key.as_str()) {
            return refuse(field, format!("{key} is Sluice's own"), "leave it out: pods are found by it");
        }
    }
    Ok(())
}

fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, length)| {
        let longest = address.parse::<IpAddr>().map(|address| if address.is_ipv4() { 32 } else { 128 });
        longest.is_ok_and(|longest| length.parse::<u8>().is_ok_and(|length| length <= longest))
    })
}

fn issuer(issuer: &IssuerRef) -> Result<(), InvalidOption> {
    if is_subdomain(&issuer.name) && !issuer.kind.is_empty() && is_subdomain(&issuer.group) {
        return Ok(());
    }
    let problem = format!("{}.{} {:?} is no issuer", issuer.kind, issuer.group, issuer.name);
    let remedy =
        "give the name of an Issuer in the namespace of the installation, or kind ClusterIssuer beside it";
    refuse("certManager.issuerRef", problem, remedy)
}

fn namespace(name: &str, used: NamespaceUse) -> Result<(), InvalidOption> {
    const REMEDY: &str = "give a namespace of its own, such as sluice-system";
    if !is_label(name) {
        return refuse("namespace", format!("{name:?} is no name of a namespace"), REMEDY);
    }
    // Policies about an installation would hold for what the cluster needs to start.
    if name.starts_with("kube-") || name == "default" {
        return refuse("namespace", format!("{name} is a namespace of Kubernetes"), REMEDY);
    }
    // `openshift-` is for the platform: a project of that name cannot be created.
    if name.starts_with("openshift-") && used == NamespaceUse::Created {
        return refuse("namespace", format!("{name} is a name that OpenShift keeps for itself"), REMEDY);
    }
    Ok(())
}

/// `[registry[:port]/]path[:tag][@sha256:digest]` (`github.com/distribution/reference`, `regexp.go`).
fn image(reference: &str) -> Result<(), InvalidOption> {
    let (name, digest) =
        reference.split_once('@').map_or((reference, None), |(name, digest)| (name, Some(digest)));
    let is_digest = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let start_of_last = name.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match name.rfind(':').filter(|colon| *colon >= start_of_last) {
        Some(colon) => name.split_at(colon),
        None => (name, ""),
    };
    let is_tag = |tag: &str| {
        let first = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        tag.len() <= 128 && first && tag.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    };
    let has_tag = tag.is_empty() || is_tag(tag.trim_start_matches(':'));
    if is_path(path) && has_tag && digest.is_none_or(is_digest) {
        return Ok(());
    }
    let remedy =
        "write registry/path:tag or registry/path@sha256:digest, like registry.example.com/sluice:0.1.0";
    refuse("image", format!("{reference:?} is no reference of an image"), remedy)
}

/// The first part may be a registry, which has upper case letters and a port too.
fn is_path(path: &str) -> bool {
    let allowed = |part: &str, further: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || further.contains(c);
        let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        outer(part.chars().next())
            && outer(part.chars().next_back())
            && part.chars().all(|c| inner(c) || (further.contains(':') && c.is_ascii_uppercase()))
    };
    let mut parts = path.split('/').peekable();
    let Some(first) = parts.next() else { return false };
    let further = if parts.peek().is_some() { "-.:" } else { "-._" };
    allowed(first, further) && parts.all(|part| allowed(part, "-._"))
}

/// The rules of the API server (`k8s.io/kubernetes/pkg/apis/core/validation`, `ValidateTolerations`).
fn toleration(given: &Toleration) -> Result<(), InvalidOption> {
    const FIELD: &str = "tolerations";
    let operator = given.operator.as_deref().unwrap_or("Equal");
    let key = given.key.as_deref().unwrap_or_default();
    let value = given.value.as_deref().unwrap_or_default();
    let effect = given.effect.as_deref().unwrap_or_default();
    let of = if key.is_empty() {
        "a toleration without key".to_owned()
    } else {
        format!("the toleration of {key}")
    };
    if !["Equal", "Exists"].contains(&operator) {
        return refuse(FIELD, format!("{of} has the operator {operator:?}"), "write Exists or Equal");
    }
    if key.is_empty() && operator != "Exists" {
        return refuse(FIELD, of, "give it a key, or the operator Exists to tolerate all taints");
    }
    if !key.is_empty() && !is_label_key(key) {
        return refuse(
            FIELD,
            format!("{key:?} is no key of a taint"),
            "take the key from kubectl describe node",
        );
    }
    if operator == "Exists" && !value.is_empty() {
        return refuse(FIELD, format!("{of} has the operator Exists and a value"), "leave the value out");
    }
    if !is_label_value(value) {
        return refuse(
            FIELD,
            format!("{of} has the value {value:?}"),
            "take the value from kubectl describe node",
        );
    }
    if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        let remedy = "write NoSchedule, PreferNoSchedule or NoExecute, or leave it out";
        return refuse(FIELD, format!("{of} has the effect {effect:?}"), remedy);
    }
    if given.toleration_seconds.is_some() && effect != "NoExecute" {
        let remedy = "leave them out, or set the effect NoExecute";
        return refuse(FIELD, format!("{of} has tolerationSeconds without the effect NoExecute"), remedy);
    }
    Ok(())
}

fn amounts(amounts: &Amounts) -> Result<(), InvalidOption> {
    for text in [&amounts.cpu, &amounts.memory] {
        let positive = text.parse::<Quantity>().is_ok_and(|amount| amount > Quantity::ZERO);
        if !positive {
            let remedy = "write it as Kubernetes does, like 100m or 256Mi";
            return refuse("resources", format!("{text:?} is no amount of CPU or memory"), remedy);
        }
    }
    Ok(())
}

/// RFC 1123.
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let outer = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && outer(value.chars().next())
        && outer(value.chars().next_back())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
