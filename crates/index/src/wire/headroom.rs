//! What head-room is made of: native quotas, budgets and LimitRanges, as they are decoded.

use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use sluice_api::{
    HeadroomPolicy, HeadroomPolicyStatus, VirtualMachineMigrationResourceQuota,
    VirtualMachineMigrationResourceQuotaStatus,
};

use super::quantity::{ResourceTexts, resource_list};
use super::quota::QuotaSpecWire;

/// A ResourceQuota with its amounts as they are in the API.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = ResourceQuota)]
pub struct NativeQuotaWire {
    /// Name, namespace, uid, version, times, labels and the annotations that matter here.
    #[serde(deserialize_with = "super::meta::annotated")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: QuotaSpecWire,
    /// What is enforced and used.
    #[serde(default)]
    pub status: NativeQuotaStatusWire,
}

/// `status` of a ResourceQuota.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NativeQuotaStatusWire {
    /// Limits that are enforced.
    #[serde(default, deserialize_with = "resource_list")]
    pub hard: ResourceTexts,
    /// What is taken.
    #[serde(default, deserialize_with = "resource_list")]
    pub used: ResourceTexts,
}

/// A `VirtualMachineMigrationResourceQuota`.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = VirtualMachineMigrationResourceQuota)]
pub struct VmmrqWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
    /// What is granted.
    #[serde(default)]
    pub spec: VmmrqSpecWire,
    /// The status; `None` if it cannot be read, or is not kept.
    #[serde(default = "crate::stated::empty", deserialize_with = "crate::stated::readable")]
    pub status: Option<VirtualMachineMigrationResourceQuotaStatus>,
}

/// `spec` of a `VirtualMachineMigrationResourceQuota`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmmrqSpecWire {
    /// Amounts by key of a ResourceQuota.
    #[serde(default, deserialize_with = "resource_list")]
    pub additional_migration_resources: ResourceTexts,
}

/// A `HeadroomPolicy`.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = HeadroomPolicy)]
pub struct HeadroomPolicyWire {
    /// Name, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
    /// What is granted, and where.
    #[serde(default)]
    pub spec: HeadroomPolicySpecWire,
    /// The status; `None` if it cannot be read, or is not kept.
    #[serde(default = "crate::stated::empty", deserialize_with = "crate::stated::readable")]
    pub status: Option<HeadroomPolicyStatus>,
}

/// `spec` of a `HeadroomPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomPolicySpecWire {
    /// Which namespaces; absent selects none, since the field is required.
    #[serde(default)]
    pub namespace_selector: Option<LabelSelector>,
    /// How much.
    #[serde(default)]
    pub budget: HeadroomBudgetWire,
    /// What is left alone.
    #[serde(default)]
    pub opt_out: Option<HeadroomOptOutWire>,
}

/// `spec.budget` of a `HeadroomPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct HeadroomBudgetWire {
    /// `Unlimited`, `PerNamespace` or `Pool`.
    #[serde(default)]
    pub mode: String,
    /// Amounts by key of a ResourceQuota.
    #[serde(default, deserialize_with = "resource_list")]
    pub resources: ResourceTexts,
}

/// `spec.optOut` of a `HeadroomPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomOptOutWire {
    /// Names of namespaces.
    #[serde(default)]
    pub namespaces: Option<Vec<String>>,
    /// ResourceQuotas by their labels; absent means none.
    #[serde(default)]
    pub resource_quota_selector: Option<LabelSelector>,
}

/// A LimitRange: that it is there, and its version.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = LimitRange)]
pub struct LimitRangeWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
}
