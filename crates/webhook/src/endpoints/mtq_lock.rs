//! managed-tenant-quota's lock server (`docs/predecessors.md`, *The lock of MTQ*), for lock objects that still exist.
//!
//! Such an object exists while a namespace is locked and sends all that must wait here: nothing is decided about the
//! lock itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_api::names;

use crate::review::{Review, Verdict, nullable};
use crate::settings::Settings;

/// Name of the ServiceAccount of managed-tenant-quota's controller.
const MTQ_CONTROLLER: &str = "mtq-controller";

const NO_PODS: &str = "Migration process is currently being handled by the Managed Quota controller, \
    and as a result, creations of pods are not allowed in this namespace, please try again.";
const NO_QUOTAS: &str = "Migration process is currently being handled by the Managed Quota controller, \
    and as a result, modifications to resourceQuotas are not permitted in this namespace, please try again.";
const NO_MIGRATION_QUOTAS: &str = "Migration process is currently being handled by the Managed Quota controller, \
    and as a result, modifications,creation or deletion of virtualMachineMigrationResourceQuotas \
    are not permitted in this namespace, please try again.";

/// Decides by `request.kind.kind` alone: group, operation, subresource and dry run make no difference.
pub fn mtq_lock(review: &Review<'_>, settings: &Settings) -> Verdict {
    match review.kind.as_str() {
        "Pod" => pod(review, settings),
        "ResourceQuota" => controller_only(review, settings, "valid ResourceQuota Update", NO_QUOTAS),
        "VirtualMachineMigrationResourceQuota" => controller_only(
            review,
            settings,
            "valid VirtualMachineMigrationResourceQuota Update",
            NO_MIGRATION_QUOTAS,
        ),
        kind => Verdict::malformed(format!(
            "could not generate admission response: MTQ webhook doesn't recognize request: kind \"{kind}\", operation {:?}",
            review.operation
        )),
    }
}

/// A namespace that is locked gets target pods of migrations from KubeVirt's controller, and no other pods.
fn pod(review: &Review<'_>, settings: &Settings) -> Verdict {
    if settings.kubevirt_controller.as_deref() != Some(review.user_info.username.as_str()) {
        return Verdict::deny(NO_PODS);
    }
    match review.read_object::<Pod>("a pod") {
        Ok(pod) if pod.metadata.labels.contains_key(names::MIGRATION_JOB_LABEL) => {
            Verdict::allow("valid target virt-launcher")
        }
        Ok(_) => Verdict::deny(NO_PODS),
        Err(verdict) => verdict,
    }
}

fn controller_only(
    review: &Review<'_>,
    settings: &Settings,
    allowed: &'static str,
    denied: &'static str,
) -> Verdict {
    let namespace = &settings.install_namespace;
    let predecessor = format!("system:serviceaccount:{namespace}:{MTQ_CONTROLLER}");
    if review.user_info.username == names::controller_username(namespace)
        || review.user_info.username == predecessor
    {
        return Verdict::allow(allowed);
    }
    Verdict::deny(denied)
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, deserialize_with = "nullable")]
    labels: BTreeMap<String, IgnoredAny>,
}
