//! Names that Kubernetes knows in `spec.hard`, and what is required of them (`docs/quota-semantics.md`, *Validation*).

use crate::resource::{HUGEPAGES, is_extended};
use crate::scope::Scope;

/// Standard names that are counts of objects.
const OBJECTS: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// Standard names of what pods compute with, to which scopes can apply.
const COMPUTE: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Standard names of storage.
const STORAGE: [&str; 4] =
    ["ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage", "requests.storage"];

pub(super) fn is_standard(name: &str) -> bool {
    OBJECTS.contains(&name)
        || COMPUTE.contains(&name)
        || STORAGE.contains(&name)
        || name.strip_prefix("requests.").unwrap_or(name).starts_with(HUGEPAGES)
}

/// Whether amounts of `name` must be whole numbers.
pub(super) fn is_integer(name: &str) -> bool {
    OBJECTS.contains(&name) || is_extended(name)
}

/// Whether a quota with `scope` may limit the standard resource `name`.
pub(super) fn scope_allows(scope: Scope, name: &str) -> bool {
    match scope {
        Scope::BestEffort => name == "pods",
        Scope::VolumeAttributesClass => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        Scope::Terminating
        | Scope::NotTerminating
        | Scope::NotBestEffort
        | Scope::PriorityClass
        | Scope::CrossNamespacePodAffinity => name == "pods" || COMPUTE.contains(&name),
    }
}
