//! The cluster as a process knows it; no client.
//!
//! A watch event is decoded into a narrow type, turned into a compact record and dropped. `kinds` has one file per kind,
//! `store` the one contract of lists and sweeps, `listed` the same for what other crates keep, `cluster` the questions that
//! need several kinds, `observed` the cluster with a signal for each change.

mod amounts;
mod annotations;
mod cluster;
mod grants;
mod kinds;
mod labels;
mod list_number;
mod listed;
mod meta;
mod observed;
mod quantity;
mod quota_spec;
mod quotas;
mod selector;
mod stated;
mod store;
mod version;

pub use amounts::RawAmounts;
pub use cluster::{Cluster, Kind, Sums, amounts_of, sum_of};
pub use grants::{BudgetWires, GrantNames};
pub use kinds::aacrq::AacrqWire;
pub use kinds::aaq::{
    Aaq, AaqConfigurationWire, AaqRecord, AaqSpecWire, AaqWire, Aaqs, VmiCalculatorConfigurationWire,
};
pub use kinds::acrq::{AcrqSpecWire, AcrqWire, SelectorWire};
pub use kinds::arq::{ArqWire, QuotaConditionWire, QuotaStatusWire};
pub use kinds::cluster_quota_charge::ClusterQuotaChargeWire;
pub use kinds::cluster_resource_quota::{
    ClusterResourceQuotaRecord, ClusterResourceQuotaSpecWire, ClusterResourceQuotaState,
    ClusterResourceQuotaStatusWire, ClusterResourceQuotaWire, ClusterResourceQuotas, NamespaceStatusWire,
};
pub use kinds::device_class::{DeviceClassSpecWire, DeviceClassWire, DeviceClasses};
pub use kinds::evaluator::EvaluatorWire;
pub use kinds::headroom_policy::{
    HeadroomBudgetWire, HeadroomOptOutWire, HeadroomPolicySpecWire, HeadroomPolicyWire, Mode, Policies,
    Policy, PolicyRecord,
};
pub use kinds::kubevirt::{
    DeveloperConfigurationWire, KubeVirtConfigurationWire, KubeVirtNetworkWire, KubeVirtSpecWire,
    KubeVirtStatusWire, KubeVirtWire, KubeVirts,
};
pub use kinds::limit_range::{LimitRangeWire, LimitRanges};
pub use kinds::namespace::{
    HeadroomNamespace, HeadroomNamespaces, Namespace, NamespaceChange, NamespaceId, NamespaceRecord,
    NamespaceWire, Namespaces, Targeting,
};
pub use kinds::pod::{
    AffinityTermWire, AffinityWire, ConditionWire, ContainerStatusWire, ContainerWire, GateWire, Gates,
    Launcher, LauncherRecord, Launchers, ListWire, NativeChargeError, Ownership, PlatformKey, PlatformPod,
    PodAffinityWire, PodChange, PodFacts, PodRecord, PodReference, PodSpecWire, PodStatusWire, PodView,
    PodWire, PodWithText, Pods, ResourcesWire, ViewKey, WeightedTermWire, cut_to_what_counts, growth_of,
    native_charge, need_of, push_tightly,
};
pub use kinds::resource_quota::{
    Owner, RawQuota, ResourceQuotaRecord, ResourceQuotaState, ResourceQuotaStatusWire, ResourceQuotaWire,
    ResourceQuotas,
};
pub use kinds::vmi::{
    BindingWire, CpuWire, DevicesWire, DomainResourcesWire, DomainWire, FirmwareWire, InterfaceWire,
    IoThreadsWire, LaunchSecurityWire, MemoryStatusWire, MemoryWire, MigrationStateWire, PlugWire, ProbeWire,
    TpmWire, VmReference, Vmi, VmiError, VmiRecord, VmiSpecWire, VmiStatusWire, VmiWire, Vmis, VolumeWire,
};
pub use kinds::vmim::{
    MigrationPriority, Phase, Vmim, VmimRecord, VmimSpecWire, VmimStatusWire, VmimWire, Vmims,
};
pub use kinds::vmmrq::{Vmmrq, VmmrqRecord, VmmrqSpecWire, VmmrqStated, VmmrqWire, Vmmrqs};
pub use labels::Labels;
pub use list_number::Source;
pub use listed::Listed;
pub use observed::{Dirty, Observed};
pub use quantity::{QuantityText, ResourceTexts};
pub use quota_spec::{QuotaSpecWire, ScopeRequirementWire, ScopeSelectorWire};
pub use quotas::{
    ChargeObject, ClusterChange, ClusterScope, Printed, Quantities, QuotaChange, QuotaRecord, QuotaScope,
    Quotas, Recorded, Told, ToldOfMachines,
};
pub use selector::read_selector;
pub use stated::Stated;
pub use store::{Affected, Change, Key, Record, Watched};
pub use version::Version;
