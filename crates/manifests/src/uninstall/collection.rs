//! Objects that are found by a list, because only the cluster knows their names.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_api::names;

use super::object::Kind;

/// Objects of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collection {
    /// ResourceQuotas beside application-aware quotas. Without the controller their limits would stay for ever.
    ManagedQuotas,
    /// Likewise OpenShift's ClusterResourceQuotas.
    ManagedClusterQuotas,
    /// What each namespace is shown of a cluster quota. The controller makes it of the quota.
    Mirrors,
    /// The charges of cluster quotas, in the namespace of the installation.
    Charges,
    /// ApplicationAwareResourceQuotas.
    Quotas,
    /// ApplicationAwareClusterResourceQuotas.
    ClusterQuotas,
    /// Head-room of a namespace.
    Grants,
    /// Head-room of many namespaces.
    Policies,
    /// Rules that say what pods take.
    Evaluators,
    /// Objects of application-aware-quota's lock.
    JobQueues,
    /// `AAQ`s. They go with their CRD alone.
    Aaqs,
}

impl Collection {
    /// What an installation has made.
    pub const MADE: [Self; 4] =
        [Self::ManagedQuotas, Self::ManagedClusterQuotas, Self::Mirrors, Self::Charges];
    /// What users have written.
    pub const OF_USERS: [Self; 6] =
        [Self::Quotas, Self::ClusterQuotas, Self::Grants, Self::Policies, Self::Evaluators, Self::JobQueues];
    /// What is told, and never deleted by itself.
    pub const KEPT: [Self; 1] = [Self::Aaqs];

    /// The kind of the objects.
    #[must_use]
    pub fn kind(self) -> Kind {
        let of_group = |kind| Kind::new(names::API_VERSION, kind);
        match self {
            Self::ManagedQuotas => Kind::new("v1", "ResourceQuota"),
            Self::ManagedClusterQuotas => {
                Kind::new(&format!("{}/v1", names::OPENSHIFT_QUOTA_GROUP), "ClusterResourceQuota")
            }
            Self::Mirrors => of_group("ApplicationAwareAppliedClusterResourceQuota"),
            Self::Charges => own("ClusterQuotaCharge"),
            Self::Quotas => of_group("ApplicationAwareResourceQuota"),
            Self::ClusterQuotas => of_group("ApplicationAwareClusterResourceQuota"),
            Self::Grants => Kind::new(
                &format!("{}/{}", names::MTQ_GROUP, names::VERSION),
                "VirtualMachineMigrationResourceQuota",
            ),
            Self::Policies => own("HeadroomPolicy"),
            Self::Evaluators => own(names::EVALUATOR),
            Self::JobQueues => of_group("AAQJobQueueConfig"),
            Self::Aaqs => of_group("AAQ"),
        }
    }

    /// Labels that the objects have, as a list takes them; empty: any.
    #[must_use]
    pub fn selector(self) -> String {
        match self {
            Self::ManagedQuotas | Self::ManagedClusterQuotas | Self::Mirrors => {
                format!("{}=true", names::MANAGED_LABEL)
            }
            _ => String::new(),
        }
    }

    /// Whether the object is one of them. Anybody may give a ResourceQuota label and name of a managed one: that also has
    /// its quota as an owner.
    #[must_use]
    pub fn has(self, object: &ObjectMeta) -> bool {
        let (suffix, of) = match self {
            Self::ManagedQuotas => (names::MANAGED_QUOTA_SUFFIX, Self::Quotas),
            Self::ManagedClusterQuotas => (names::MANAGED_CLUSTER_QUOTA_SUFFIX, Self::ClusterQuotas),
            _ => return true,
        };
        let quota = of.kind();
        let is_quota = |owner: &OwnerReference| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == quota.kind && group == Some(&*quota.group)
        };
        object.name.as_ref().is_some_and(|name| name.ends_with(suffix))
            && object.owner_references.iter().flatten().any(is_quota)
    }

    /// Whether only those in the namespace of the installation are meant.
    #[must_use]
    pub const fn is_at_home(self) -> bool {
        matches!(self, Self::Charges)
    }
}

fn own(kind: &str) -> Kind {
    Kind::new(&format!("{}/{}", names::OWN_GROUP, names::OWN_VERSION), kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_managed_quota_is_owned_by_an_application_aware_one() {
        let object = |name: &str, group: &str, kind: &str| {
            let owner =
                json!({ "apiVersion": format!("{group}/v1alpha1"), "kind": kind, "name": "q", "uid": "u" });
            serde_json::from_value::<ObjectMeta>(json!({ "name": name, "ownerReferences": [owner] })).unwrap()
        };
        let managed = format!("q{}", names::MANAGED_QUOTA_SUFFIX);
        let of =
            |name: &str, group: &str, kind: &str| Collection::ManagedQuotas.has(&object(name, group, kind));
        assert!(of(&managed, names::GROUP, "ApplicationAwareResourceQuota"));
        assert!(!of("q", names::GROUP, "ApplicationAwareResourceQuota"));
        assert!(!of(&managed, names::GROUP, "ApplicationAwareClusterResourceQuota"));
        assert!(!of(&managed, "example.com", "ApplicationAwareResourceQuota"));
        let alone = ObjectMeta { name: Some(managed), ..ObjectMeta::default() };
        assert!(!Collection::ManagedQuotas.has(&alone), "somebody has written it");
        let of_cluster = format!("q{}", names::MANAGED_CLUSTER_QUOTA_SUFFIX);
        let of_cluster = object(&of_cluster, names::GROUP, "ApplicationAwareClusterResourceQuota");
        assert!(Collection::ManagedClusterQuotas.has(&of_cluster));
        assert!(Collection::Mirrors.has(&alone));
    }
}
