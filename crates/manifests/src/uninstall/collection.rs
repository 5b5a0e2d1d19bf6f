//! Objects that are found by a list, because only the cluster knows their names.

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
    pub const OF_USERS: [Self; 5] =
        [Self::Quotas, Self::ClusterQuotas, Self::Grants, Self::Policies, Self::JobQueues];
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

    /// How the names of the objects end.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::ManagedQuotas => names::MANAGED_QUOTA_SUFFIX,
            Self::ManagedClusterQuotas => names::MANAGED_CLUSTER_QUOTA_SUFFIX,
            _ => "",
        }
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
