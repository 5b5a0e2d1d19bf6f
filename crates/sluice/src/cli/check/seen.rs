//! What was read of a cluster, and where it is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::{is_placeholder, names};
use sluice_controllers::gating;
use sluice_manifests::uninstall::Kind;
use sluice_manifests::{InstallOptions, OptionsFile, admission_policies, crds, install_objects};

use super::about::{About, Check};

/// What an API server says when it does not get through to a webhook.
pub const NOT_REACHED: &str = "failed calling webhook";

/// What an API server says, without the paths of addresses: the path of the webhook is a secret.
pub fn without_paths(text: &str) -> String {
    const SCHEME: &str = "https://";
    let mut parts = text.split(SCHEME);
    let mut said = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ends = |found: char| found == '"' || found.is_whitespace();
        let address = part.split(ends).next().unwrap_or_default();
        let host = address.split(['/', '?']).next().unwrap_or_default();
        let rest = part.strip_prefix(address).unwrap_or_default();
        said.extend([SCHEME, host, rest]);
    }
    said
}

/// What a read came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Read {
    Is(Value),
    Absent,
    /// Why it is not known.
    Unknown(String),
    /// Nobody has asked.
    #[default]
    Unasked,
}

/// What a question to the webhook came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It has answered after so many milliseconds.
    Yes(u128),
    /// An API server says why it does not get through.
    No(String),
    /// The question has not come so far, and why.
    Unknown(String),
}

#[derive(Clone, Debug)]
pub struct Seen {
    /// Namespace of the installation.
    pub namespace: String,
    /// What the operator was told.
    pub options: InstallOptions,
    /// Why that is not known.
    pub options_fault: Option<String>,
    /// Major and minor version of the API server.
    pub version: Result<(u32, u32), String>,
    /// By the clock of the API server.
    pub now: Timestamp,
    /// By path.
    pub objects: BTreeMap<String, Read>,
    pub reached: Reached,
    pub gates: gating::Seen,
}

impl Seen {
    pub fn at(&self, path: &str) -> &Read {
        const NOT_READ: &Read = &Read::Unasked;
        self.objects.get(path).unwrap_or(NOT_READ)
    }

    /// The items of a list; `Err`: a check that cannot be made without them. Of a kind that is not installed there are none.
    pub fn items(&self, path: &str, about: &'static About) -> Result<&[Value], Check> {
        match self.at(path) {
            Read::Is(list) => {
                Ok(list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default())
            }
            Read::Absent => Ok(&[]),
            read => Err(unread(read, about)),
        }
    }
}

/// What an object comes to that has to be there.
pub fn object(
    read: &Read,
    about: &'static About,
    judge: impl FnOnce(&Value) -> Result<String, String>,
) -> Check {
    match read {
        Read::Is(object) => match judge(object) {
            Ok(found) => about.good(found),
            Err(found) => about.failed(found),
        },
        Read::Absent => about.failed("not there"),
        Read::Unknown(_) | Read::Unasked => unread(read, about),
    }
}

/// A check that cannot be made for want of an object.
pub fn unread(read: &Read, about: &'static About) -> Check {
    about.unknown(if let Read::Unknown(why) = read { why.as_str() } else { "not read" })
}

/// The options that the operator's ConfigMap has; the default, and why, where it cannot be read.
pub fn options(map: &Read, namespace: &str) -> (InstallOptions, Option<String>) {
    let base = InstallOptions { namespace: namespace.to_owned(), ..InstallOptions::default() };
    let text = match map {
        Read::Is(map) => text(map, &format!("/data/{}", names::OPTIONS_KEY)),
        _ => "",
    };
    let read = OptionsFile::parse(text).map_err(|error| error.to_string());
    match read.and_then(|file| file.over(base.clone()).map_err(|error| error.to_string())) {
        Ok(options) => (options, None),
        Err(why) => (base, Some(why)),
    }
}

/// The text at `pointer`; empty without one.
pub fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Name of an object, with its namespace if it has one.
pub fn full_name(object: &Value) -> String {
    let name = text(object, "/metadata/name");
    match text(object, "/metadata/namespace") {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// Whether it is the operator's own, which any other holds before.
pub fn gives_way(aaq: &Value) -> bool {
    let asks_for_nothing = aaq.get("spec").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    is_placeholder(
        Some(text(aaq, "/metadata/name")),
        texts(aaq, "/metadata/labels").as_ref(),
        asks_for_nothing,
    )
}

pub fn texts(object: &Value, pointer: &str) -> Option<BTreeMap<String, String>> {
    let all = object.pointer(pointer)?.as_object()?;
    Some(all.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
}

/// Kind and name of an object, for people.
pub fn called(object: &Value) -> String {
    format!("{} {}", text(object, "/kind"), full_name(object))
}

fn path(api_version: &str, kind: &str, namespace: Option<&str>) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let resource = Kind::new(api_version, kind).resource();
    match namespace {
        Some(namespace) => format!("/{root}/{api_version}/namespaces/{namespace}/{resource}"),
        None => format!("/{root}/{api_version}/{resource}"),
    }
}

/// Where an object is.
pub fn path_of(object: &Value) -> String {
    let namespace = Some(text(object, "/metadata/namespace")).filter(|namespace| !namespace.is_empty());
    let all = path(text(object, "/apiVersion"), text(object, "/kind"), namespace);
    format!("{all}/{}", text(object, "/metadata/name"))
}

/// Where a Deployment of the installation is.
pub fn deployment(namespace: &str, name: &str) -> String {
    format!("{}/{name}", path("apps/v1", "Deployment", Some(namespace)))
}

/// Where a Lease of the installation is.
pub fn lease(namespace: &str, name: &str) -> String {
    format!("{}/{name}", path("coordination.k8s.io/v1", "Lease", Some(namespace)))
}

/// Where the endpoints of a Service are.
pub fn endpoints(namespace: &str, service: &str) -> String {
    let all = path("discovery.k8s.io/v1", "EndpointSlice", Some(namespace));
    format!("{all}?labelSelector=kubernetes.io/service-name={service}")
}

/// Where the ConfigMap with the options is.
pub fn options_map(namespace: &str) -> String {
    format!("{}/{}", path("v1", "ConfigMap", Some(namespace)), names::OPERATOR)
}

/// Where a webhook configuration is.
pub fn webhooks(kind: &str, name: &str) -> String {
    format!("{}/{name}", path("admissionregistration.k8s.io/v1", kind, None))
}

/// Deployments of the programs that Sluice stands for, wherever they are.
pub const OTHERS: [&str; 5] =
    ["aaq-operator", "aaq-controller", "mtq-operator", "mtq-controller", "mtq-lock-server"];

/// Where they are looked for.
pub fn other(name: &str) -> String {
    format!("{}?fieldSelector=metadata.name={name}", path("apps/v1", "Deployment", None))
}

/// Lists of all objects of a kind.
pub mod lists {
    pub const AAQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";
    pub const QUOTAS: &str = "/apis/aaq.kubevirt.io/v1alpha1/applicationawareresourcequotas";
    pub const CLUSTER_QUOTAS: &str = "/apis/aaq.kubevirt.io/v1alpha1/applicationawareclusterresourcequotas";
    pub const POLICIES: &str = "/apis/quota.sluice.dev/v1alpha1/headroompolicies";
    pub const NAMESPACES: &str = "/api/v1/namespaces";
}

/// The roles and bindings of an installation, in its two forms: with rights by namespace, and as a kustomization has them.
pub fn rights(options: &InstallOptions) -> [Vec<Value>; 2] {
    let is_right = |object: &Value| {
        ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"].contains(&text(object, "/kind"))
    };
    [false, true].map(|reads_leases_everywhere| {
        let options = InstallOptions { reads_leases_everywhere, ..options.clone() };
        install_objects(&options).into_iter().filter(is_right).collect()
    })
}

/// What keeps the requests of an installation apart from others'.
pub fn flow() -> [String; 2] {
    ["FlowSchema", "PriorityLevelConfiguration"]
        .map(|kind| format!("{}/{}", path("flowcontrol.apiserver.k8s.io/v1", kind, None), names::FLOW))
}

/// All that is read of an installation, beside its options and what answers questions.
pub fn paths(namespace: &str, options: &InstallOptions) -> Vec<String> {
    let parts = options.naming.parts();
    let mut paths: Vec<String> = crds().iter().map(path_of).collect();
    paths.extend([parts.operator, parts.controller, parts.webhook].map(|name| deployment(namespace, name)));
    paths.extend([names::LEASE, names::OPERATOR].map(|name| lease(namespace, name)));
    paths.push(endpoints(namespace, parts.webhook));
    paths.push(webhooks("MutatingWebhookConfiguration", names::MUTATING_CONFIG));
    paths.push(webhooks("ValidatingWebhookConfiguration", names::VALIDATING_CONFIG));
    for policy in admission_policies(options) {
        paths.extend([path_of(&policy.policy), path_of(&policy.binding)]);
    }
    paths.extend(rights(options).iter().flatten().map(path_of));
    paths.extend(flow());
    paths.extend(OTHERS.map(other));
    let lists = [lists::AAQS, lists::QUOTAS, lists::CLUSTER_QUOTAS, lists::POLICIES, lists::NAMESPACES];
    paths.extend(lists.map(str::to_owned));
    paths.sort_unstable();
    paths.dedup();
    paths
}
