//! Names of counted resources: which names mean the same number, and who consumes them
//! (`docs/quota-semantics.md`, *What a pod is charged*, *Validation*).

use std::fmt;
use std::sync::Arc;

/// Prefix of huge page resources.
pub(crate) const HUGEPAGES: &str = "hugepages-";
/// Prefix of extended resources that a device class answers (Kubernetes 1.35+).
pub(crate) const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
const REQUESTS: &str = "requests.";
/// Resources of virtual machines that have a short and a `requests.` name for one number.
pub(crate) const VMI_NAMES: [&str; 3] = ["cpu/vmi", "instances/vmi", "memory/vmi"];

/// The identity of a counted resource. Names for the same number are one `Resource`:
/// `cpu` and `requests.cpu`, `hugepages-X` and `requests.hugepages-X`, `cpu/vmi` and `requests.cpu/vmi`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `pods`: pods that are not finished.
    Pods,
    /// `count/pods`: stored pod objects.
    CountPods,
    /// `cpu`, `requests.cpu`.
    Cpu,
    /// `memory`, `requests.memory`.
    Memory,
    /// `ephemeral-storage`, `requests.ephemeral-storage`.
    EphemeralStorage,
    /// `limits.cpu`.
    LimitsCpu,
    /// `limits.memory`.
    LimitsMemory,
    /// `limits.ephemeral-storage`.
    LimitsEphemeralStorage,
    /// Everything else, by its shortest equivalent name.
    Named(Arc<str>),
}

impl Resource {
    /// The resource that a key of `spec.hard` names.
    #[must_use]
    pub fn from_quota_key(key: &str) -> Self {
        Self::well_known(key).unwrap_or_else(|| Self::Named(Arc::from(fold(key))))
    }

    /// The resources that every pod evaluator knows by exact name.
    fn well_known(key: &str) -> Option<Self> {
        Some(match key {
            "pods" => Self::Pods,
            "count/pods" => Self::CountPods,
            "cpu" | "requests.cpu" => Self::Cpu,
            "memory" | "requests.memory" => Self::Memory,
            "ephemeral-storage" | "requests.ephemeral-storage" => Self::EphemeralStorage,
            "limits.cpu" => Self::LimitsCpu,
            "limits.memory" => Self::LimitsMemory,
            "limits.ephemeral-storage" => Self::LimitsEphemeralStorage,
            _ => return None,
        })
    }

    /// The shortest key that names this resource.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Pods => "pods",
            Self::CountPods => "count/pods",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::LimitsCpu => "limits.cpu",
            Self::LimitsMemory => "limits.memory",
            Self::LimitsEphemeralStorage => "limits.ephemeral-storage",
            Self::Named(name) => name,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

fn fold(key: &str) -> &str {
    match key.strip_prefix(REQUESTS) {
        Some(short) if short.starts_with(HUGEPAGES) || VMI_NAMES.contains(&short) => short,
        _ => key,
    }
}

/// Who can consume a key of `spec.hard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// The pod evaluator of Kubernetes answers for it. `requests.deviceclass.…` is one of them on every
    /// version; before 1.35 pods simply never consume it.
    Pod,
    /// A qualified name that no evaluator of Kubernetes knows: an own evaluator may charge pods with it.
    Custom,
    /// Pods never consume it: other objects do, or nothing.
    Other,
}

/// Who can consume `key`.
#[must_use]
pub fn key_kind(key: &str) -> KeyKind {
    let short = key.strip_prefix(REQUESTS).unwrap_or(key);
    if VMI_NAMES.contains(&short) {
        return KeyKind::Custom;
    }
    if Resource::well_known(key).is_some() || short.starts_with(HUGEPAGES) {
        return KeyKind::Pod;
    }
    if key.starts_with(REQUESTS) && (!is_native(key) || short.starts_with(DEVICE_CLASS)) {
        return KeyKind::Pod;
    }
    if !key.contains('/') || is_core_count(key) { KeyKind::Other } else { KeyKind::Custom }
}

/// Qualified names that Kubernetes counts for other objects, or never.
fn is_core_count(key: &str) -> bool {
    key.starts_with("count/")
        || key.contains(".storageclass.storage.k8s.io/")
        || key.ends_with(".deviceclass.resource.k8s.io/devices")
}

/// Whether a pod may consume `key`, by Kubernetes' rules or by an own evaluator.
#[must_use]
pub fn consumed_by_pods(key: &str) -> bool {
    key_kind(key) != KeyKind::Other
}

/// Whether Kubernetes itself owns the name: no `/` in it, or `kubernetes.io/`.
#[must_use]
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a container resource of this name is an extended resource, charged as `requests.<name>`.
#[must_use]
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with(REQUESTS) && prefixed_is_qualified(name)
}

/// Whether `"requests." + name` is a qualified name, without building the text.
fn prefixed_is_qualified(name: &str) -> bool {
    match name.split_once('/') {
        Some((domain, rest)) => {
            domain.len() + REQUESTS.len() <= MAX_DOMAIN && is_subdomain(domain) && is_short_name(rest)
        }
        None => false,
    }
}

const MAX_DOMAIN: usize = 253;
const MAX_SHORT_NAME: usize = 63;

/// Whether `name` is a qualified name: `[domain/]name`.
#[must_use]
pub fn is_qualified_name(name: &str) -> bool {
    match name.split_once('/') {
        Some((domain, rest)) => domain.len() <= MAX_DOMAIN && is_subdomain(domain) && is_short_name(rest),
        None => is_short_name(name),
    }
}

/// Whether `value` is the value of a label: empty, or the part of a qualified name after the `/`.
#[must_use]
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_short_name(value)
}

fn is_subdomain(domain: &str) -> bool {
    domain.len() <= MAX_DOMAIN
        && domain.split('.').all(|label| {
            bounded_by(label, |b| b.is_ascii_lowercase() || b.is_ascii_digit())
                && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

fn is_short_name(name: &str) -> bool {
    name.len() <= MAX_SHORT_NAME
        && bounded_by(name, |b| b.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether the first and the last byte pass; an empty text does not.
fn bounded_by(text: &str, pass: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| pass(*b)) && bytes.last().is_some_and(|b| pass(*b))
}
