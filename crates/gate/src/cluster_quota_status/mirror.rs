//! The mirror of a cluster quota in one of its namespaces, as an object.

use kube::Resource as _;
use serde_json::{Value, json};
use sluice_api::{
    ApplicationAwareAppliedClusterResourceQuota, ApplicationAwareClusterResourceQuota, ClusterQuotaStatus,
    names,
};
use sluice_index::AacrqWire;

use super::retries::MirrorKey;

pub(super) fn mirror_key(wire: &AacrqWire) -> MirrorKey {
    let meta = &wire.metadata;
    (meta.name.as_deref().unwrap_or_default().into(), meta.namespace.as_deref().unwrap_or_default().into())
}

/// `quota`: its uid and its specification; `known_as`: uid and version of the mirror if there is one.
pub(super) fn mirror(
    (quota, spec): (&str, &Value),
    (name, namespace): &MirrorKey,
    status: &ClusterQuotaStatus,
    known_as: Option<(&str, Option<&str>)>,
) -> Value {
    json!({
        "apiVersion": ApplicationAwareAppliedClusterResourceQuota::api_version(&()),
        "kind": ApplicationAwareAppliedClusterResourceQuota::kind(&()),
        "metadata": {
            "name": **name,
            "namespace": **namespace,
            "uid": known_as.map(|(uid, _)| uid),
            "resourceVersion": known_as.and_then(|(_, version)| version),
            "labels": { names::MANAGED_LABEL: "true" },
            "ownerReferences": [{
                "apiVersion": ApplicationAwareClusterResourceQuota::api_version(&()),
                "kind": ApplicationAwareClusterResourceQuota::kind(&()),
                "name": **name,
                "uid": quota,
                "controller": true,
            }],
        },
        "spec": spec,
        "status": status,
    })
}
