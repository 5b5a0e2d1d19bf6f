//! What head-room decisions are made from: native quotas, migrations and budgets.
//!
//! ```text
//!  watch event ──▶ wire (decoded narrowly) ──▶ Record ──▶ Store of its kind ─┐
//!                                              NativeQuotas, Vmmrqs, Policies ├─▶ HeadroomIndex::quotas_in, ::budget
//!                                              HeadroomNamespaces ────────────┘
//!                                              Migrations, Machines, Targets, KubeVirts
//! ```
//! Each kind is a field with the operations of [`Watched`]; what needs several kinds is a method of
//! [`HeadroomIndex`].

mod budget;
mod kubevirts;
mod labels;
mod limit_ranges;
mod machines;
mod migrations;
mod namespaces;
mod native;
mod native_quotas;
mod policies;
mod targets;
mod texts;
mod vmmrqs;

pub use crate::store::{Affected, Change, Key, Record, Watched};
pub use kubevirts::KubeVirts;
pub use labels::Labels;
pub use limit_ranges::LimitRanges;
pub use machines::{Machine, Machines, VmiRecord};
pub use migrations::{Migration, MigrationPriority, MigrationRecord, Migrations, Phase};
pub use namespaces::{HeadroomNamespace, HeadroomNamespaces, NamespaceRecord};
pub use native::{Native, RawQuota, ResourceQuotaRecord};
pub use native_quotas::NativeQuotas;
pub use policies::{Mode, Policies, Policy, PolicyRecord};
pub use targets::{Target, TargetRecord, Targets};
pub use texts::RawAmounts;
pub use vmmrqs::{Vmmrq, VmmrqRecord, VmmrqStated, Vmmrqs};

use sluice_api::names;
use sluice_engine::headroom::NativeQuota;

use crate::wire::{
    HeadroomPolicyWire, KubeVirtWire, LimitRangeWire, MachineWire, MigrationWire, NamespaceWire,
    NativeQuotaWire, PodWire, VmmrqWire,
};

/// Everything that head-room decisions depend on.
#[derive(Debug, Default)]
pub struct HeadroomIndex {
    /// Installations of KubeVirt.
    pub kubevirts: KubeVirts,
    /// Live migrations.
    pub migrations: Migrations,
    /// Virtual machines that run.
    pub machines: Machines,
    /// ResourceQuotas.
    pub quotas: NativeQuotas,
    /// `VirtualMachineMigrationResourceQuota`s.
    pub vmmrqs: Vmmrqs,
    /// `HeadroomPolicy`s.
    pub policies: Policies,
    /// Namespaces.
    pub namespaces: HeadroomNamespaces,
    /// Target pods of migrations.
    pub targets: Targets,
    /// LimitRanges; only the controller watches them.
    pub limit_ranges: LimitRanges,
}

/// A kind of the index, by what its objects are decoded to.
pub trait Kind: Sized {
    /// What is kept of them.
    type Records: Watched<Wire = Self>;

    /// The records in an index.
    fn records(index: &HeadroomIndex) -> &Self::Records;

    /// As [`Self::records`], to change them.
    fn records_mut(index: &mut HeadroomIndex) -> &mut Self::Records;
}

macro_rules! kinds {
    ($($wire:ty => $field:ident: $records:ty,)*) => {$(
        impl Kind for $wire {
            type Records = $records;

            fn records(index: &HeadroomIndex) -> &$records {
                &index.$field
            }
            fn records_mut(index: &mut HeadroomIndex) -> &mut $records {
                &mut index.$field
            }
        }
    )*};
}

kinds! {
    KubeVirtWire => kubevirts: KubeVirts,
    MigrationWire => migrations: Migrations,
    MachineWire => machines: Machines,
    NativeQuotaWire => quotas: NativeQuotas,
    VmmrqWire => vmmrqs: Vmmrqs,
    HeadroomPolicyWire => policies: Policies,
    NamespaceWire => namespaces: HeadroomNamespaces,
    PodWire => targets: Targets,
    LimitRangeWire => limit_ranges: LimitRanges,
}

impl HeadroomIndex {
    /// Username of KubeVirt's controller; `None` while no KubeVirt is known.
    #[must_use]
    pub fn kubevirt_controller(&self) -> Option<String> {
        self.kubevirts.oldest().map(|record| names::kubevirt_controller_username(&record.namespace))
    }

    /// Whether nothing in the namespace may be raised.
    #[must_use]
    pub fn opted_out(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|record| record.opted_out)
    }

    /// The quotas of a namespace by name, opted out if they or the namespace are.
    #[must_use]
    pub fn quotas_in(&self, namespace: &str) -> Vec<NativeQuota> {
        let opted_out = self.opted_out(namespace);
        self.quotas.records_in(namespace).iter().map(|record| resolved(record, opted_out)).collect()
    }

    /// A quota by its name.
    #[must_use]
    pub fn quota(&self, namespace: &str, name: &str) -> Option<NativeQuota> {
        let record = self.quotas.record(namespace, name)?;
        Some(resolved(record, self.opted_out(namespace)))
    }
}

fn resolved(record: &ResourceQuotaRecord, opted_out: bool) -> NativeQuota {
    let mut quota = record.native();
    quota.opted_out |= opted_out;
    quota
}
