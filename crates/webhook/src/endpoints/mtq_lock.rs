//! managed-tenant-quota's lock server (`docs/predecessors.md`, *The lock of MTQ*), for lock objects that still exist.
//!
//! Such an object exists while a namespace is locked and sends all that must wait here: nothing is decided about the
//! lock itself.

use serde::{Deserialize, Deserializer};
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
    if settings.kubevirt_controller.as_deref() != Some(review.username.as_str()) {
        return Verdict::deny(NO_PODS);
    }
    match review.read_object::<Pod>("a pod") {
        Ok(pod) if pod.metadata.labels.has_migration => Verdict::allow("valid target virt-launcher"),
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
    if review.username == names::controller_username(namespace) || review.username == predecessor {
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
    labels: Labels,
}

/// What is kept of `metadata.labels`.
#[derive(Default)]
struct Labels {
    has_migration: bool,
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> serde::de::Visitor<'de> for Keys {
            type Value = Labels;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut found = Labels::default();
                while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                    found.has_migration |= key == names::MIGRATION_JOB_LABEL;
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}
