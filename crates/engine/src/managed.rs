//! Which keys of `spec.hard` the gate cannot govern and a managed quota limits instead: a core ResourceQuota, or OpenShift's
//! ClusterResourceQuota (`docs/quota-semantics.md`, *The managed ResourceQuota*).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::quantity::Quantity;
use crate::quota_spec::{CompiledQuota, HardEntry};
use crate::resource::{KeyKind, key_kind};
use crate::scope::{Scope, Scopes};

/// Ends of the keys that limit the claims of one storage class.
const OF_STORAGE_CLASS: [&str; 2] =
    [".storageclass.storage.k8s.io/persistentvolumeclaims", ".storageclass.storage.k8s.io/requests.storage"];
/// End of the keys that limit the devices that resource claims ask for of one class.
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";

/// What is known of the keys that the managed quota of a quota limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedStatus {
    /// What is used, by key; without those of which nothing is known yet.
    pub used: BTreeMap<Arc<str>, Quantity>,
    /// The same of each namespace, for a cluster quota.
    pub namespaces: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Quantity>>,
    /// Why some of the keys are not enforced, and what to do; `None` as long as nothing speaks against it.
    pub trouble: Option<String>,
}

/// Whether kube-controller-manager and quota admission can enforce `key`, and the gate does not. Whether the cluster has
/// the kind that `count/<resource>.<group>` names is not known here.
#[must_use]
pub fn is_countable(key: &str) -> bool {
    key_kind(key) == KeyKind::Other
        && (!key.contains('/')
            || key.starts_with("count/")
            || is_of_storage_class(key)
            || key.ends_with(OF_DEVICE_CLASS))
}

/// Whether the managed quota limits `key` of a quota with these scopes. A managed quota with scopes counts no objects but
/// pods and, with `VolumeAttributesClass` alone, PersistentVolumeClaims: of everything else it would say 0 for ever.
#[must_use]
pub fn is_managed(key: &str, scopes: &Scopes) -> bool {
    is_countable(key)
        && (scopes.is_empty() || (is_of_claims(key) && scopes.are_only(Scope::VolumeAttributesClass)))
}

/// The limits of the managed quota of `quota`; none if it needs no managed quota.
pub fn managed(quota: &CompiledQuota) -> impl Iterator<Item = &HardEntry> {
    let others = quota.entries.iter().filter(|entry| entry.kind == KeyKind::Other);
    others.filter(|entry| is_managed(&entry.key, &quota.scopes))
}

fn is_of_storage_class(key: &str) -> bool {
    OF_STORAGE_CLASS.iter().any(|end| key.ends_with(end))
}

fn is_of_claims(key: &str) -> bool {
    matches!(key, "persistentvolumeclaims" | "requests.storage" | "count/persistentvolumeclaims")
        || is_of_storage_class(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::ScopeRequirement;

    const MANAGED: [&str; 20] = [
        "configmaps",
        "count/applicationawareresourcequotas.aaq.kubevirt.io",
        "count/deployments.apps",
        "count/persistentvolumeclaims",
        "count/replicasets.apps",
        "count/secrets",
        "count/services",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
        "gold.storageclass.storage.k8s.io/requests.storage",
        "gpu.deviceclass.resource.k8s.io/devices",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "requests.storage",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
        "count/virtualmachines.kubevirt.io",
        "count/things.example.com",
    ];

    #[test]
    fn each_kind_of_key_is_the_gates_or_the_managed_quotas_or_nobodys() {
        for key in MANAGED {
            assert!(is_managed(key, &Scopes::default()), "{key}");
        }
        let gate = [
            "count/pods",
            "cpu",
            "ephemeral-storage",
            "hugepages-2Mi",
            "limits.cpu",
            "limits.ephemeral-storage",
            "limits.memory",
            "memory",
            "pods",
            "requests.cpu",
            "requests.deviceclass.resource.kubernetes.io/gpu",
            "requests.ephemeral-storage",
            "requests.hugepages-1Gi",
            "requests.memory",
            "requests.nvidia.com/gpu",
        ];
        for key in gate {
            assert!(!is_managed(key, &Scopes::default()) && key_kind(key) == KeyKind::Pod, "{key}");
        }
        let nothing = [
            "cpu/vmi",
            "instances/vmi",
            "memory/vmi",
            "requests.cpu/vmi",
            "requests.instances/vmi",
            "requests.memory/vmi",
            "limits.cpu/vmi",
            "limits.nvidia.com/gpu",
            "example.com/license",
            "gold.storageclass.storage.k8s.io/snapshots",
        ];
        for key in nothing {
            assert!(!is_managed(key, &Scopes::default()) && key_kind(key) != KeyKind::Pod, "{key}");
        }
    }

    #[test]
    fn with_scopes_only_claims_are_counted_and_only_by_their_own_scope() {
        let scopes = |all: &[Scope]| Scopes::new(all.iter().copied().map(ScopeRequirement::exists));
        let claims: Vec<&str> = MANAGED.into_iter().filter(|key| is_of_claims(key)).collect();
        assert_eq!(claims.len(), 5, "{claims:?}");
        for key in MANAGED {
            assert!(!is_managed(key, &scopes(&[Scope::NotTerminating])), "{key}");
            assert!(
                !is_managed(key, &scopes(&[Scope::VolumeAttributesClass, Scope::PriorityClass])),
                "{key}"
            );
            let of_claims = is_managed(key, &scopes(&[Scope::VolumeAttributesClass]));
            assert_eq!(of_claims, claims.contains(&key), "{key}");
        }
    }
}
