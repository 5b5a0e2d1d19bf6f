//! The two kinds of managed quotas, and what differs between them.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Resource as _;
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota, names};
use sluice_engine::QuotaKind;
use sluice_index::{ClusterResourceQuotaWire, Key};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedKind {
    /// Core's ResourceQuota, beside an `ApplicationAwareResourceQuota`.
    ResourceQuota,
    /// OpenShift's ClusterResourceQuota, of an `ApplicationAwareClusterResourceQuota`.
    ClusterResourceQuota,
}

impl ManagedKind {
    /// The kind of the quotas that they belong to.
    pub const fn of(self) -> QuotaKind {
        match self {
            Self::ResourceQuota => QuotaKind::Namespace,
            Self::ClusterResourceQuota => QuotaKind::Cluster,
        }
    }

    pub fn kind(self) -> Cow<'static, str> {
        match self {
            Self::ResourceQuota => ResourceQuota::kind(&()),
            Self::ClusterResourceQuota => ClusterResourceQuotaWire::kind(&()),
        }
    }

    pub fn api_version(self) -> Cow<'static, str> {
        match self {
            Self::ResourceQuota => ResourceQuota::api_version(&()),
            Self::ClusterResourceQuota => ClusterResourceQuotaWire::api_version(&()),
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::ResourceQuota => "resourcequotas",
            Self::ClusterResourceQuota => names::CLUSTER_RESOURCE_QUOTAS,
        }
    }

    /// Where the managed quota of a quota is.
    pub fn url_path(self, quota: &Key) -> String {
        match self {
            Self::ResourceQuota => ResourceQuota::url_path(&(), Some(&quota.namespace)),
            Self::ClusterResourceQuota => ClusterResourceQuotaWire::url_path(&(), None),
        }
    }

    /// The kind of the controller of a managed quota.
    pub fn owner(self) -> Cow<'static, str> {
        match self {
            Self::ResourceQuota => ApplicationAwareResourceQuota::kind(&()),
            Self::ClusterResourceQuota => ApplicationAwareClusterResourceQuota::kind(&()),
        }
    }

    pub fn name(self, quota: &Key) -> String {
        match self {
            Self::ResourceQuota => names::managed_quota(&quota.name),
            Self::ClusterResourceQuota => names::managed_cluster_quota(&quota.name),
        }
    }

    /// The name of the quota that a managed one of this name belongs to; `None` of other names.
    pub fn quota_of(self, managed: &str) -> Option<&str> {
        match self {
            Self::ResourceQuota => managed.strip_suffix(names::MANAGED_QUOTA_SUFFIX),
            Self::ClusterResourceQuota => managed.strip_suffix(names::MANAGED_CLUSTER_QUOTA_SUFFIX),
        }
    }

    /// Longest name of a quota that can have one.
    pub const fn max_name(self) -> usize {
        match self {
            Self::ResourceQuota => names::MAX_NAME_OF_MANAGED,
            Self::ClusterResourceQuota => names::MAX_NAME_OF_MANAGED_CLUSTER,
        }
    }

    /// `spec` of an object, of what a ResourceQuota has there and of the namespaces that a ClusterResourceQuota selects.
    pub fn spec(self, quota: Value, selector: &Value) -> Value {
        match self {
            Self::ResourceQuota => quota,
            Self::ClusterResourceQuota => json!({ "quota": quota, "selector": selector }),
        }
    }
}
