//! The cluster as a process knows it, and the questions that need several kinds.
//!
//! ```text
//!                                      ┌─▶ Vmims, Vmis, KubeVirts, Launchers ────────┐
//!  watch event ──▶ wire (decoded ──────┼─▶ ResourceQuotas, Vmmrqs, Policies,         ├─▶ Cluster: quotas_in, budget, …
//!  (one watch      narrowly)           │   HeadroomNamespaces, LimitRanges ──────────┘
//!  of each kind)                       └─▶ PodFacts ─▶ Pods, Namespaces, Quotas, Aaqs ──▶ the gate's state
//! ```
//! What head-room decides from is [`Cluster`], behind one lock that is read by many: admission, sweeps and conditions. What
//! the gate decides from ([`crate::Pods`], [`crate::Namespaces`], [`crate::Quotas`]) is part of the gate's state and behind
//! its mutex, since a decision changes it together with the queue; one lock for both would have admission wait for the
//! gate's decisions. A watch feeds both: the gate first, then the cluster. Between the two an event is known to one of them
//! only, so nothing may be decided from both.

mod account;
mod budget;

pub use budget::{Sums, amounts_of, sum_of};

use sluice_api::names;
use sluice_engine::headroom::NativeQuota;

use crate::kinds::headroom_policy::{HeadroomPolicyWire, Policies};
use crate::kinds::kubevirt::{KubeVirtWire, KubeVirts};
use crate::kinds::limit_range::{LimitRangeWire, LimitRanges};
use crate::kinds::namespace::{HeadroomNamespaces, NamespaceWire};
use crate::kinds::pod::{Launchers, PodWire};
use crate::kinds::resource_quota::{ResourceQuotaRecord, ResourceQuotaWire, ResourceQuotas};
use crate::kinds::vmi::{VmiWire, Vmis};
use crate::kinds::vmim::{VmimWire, Vmims};
use crate::kinds::vmmrq::{VmmrqWire, Vmmrqs};
use crate::store::Watched;

/// The cluster as a process knows it.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Installations of KubeVirt.
    pub kubevirts: KubeVirts,
    /// Live migrations.
    pub vmims: Vmims,
    /// Virtual machines that run.
    pub vmis: Vmis,
    pub resource_quotas: ResourceQuotas,
    /// `VirtualMachineMigrationResourceQuota`s.
    pub vmmrqs: Vmmrqs,
    /// `HeadroomPolicy`s.
    pub policies: Policies,
    pub namespaces: HeadroomNamespaces,
    /// Pods of virtual machines.
    pub launchers: Launchers,
    /// LimitRanges; only the controller watches them.
    pub limit_ranges: LimitRanges,
}

/// A kind of the cluster, by what its objects are decoded to.
pub trait Kind: Sized {
    /// What is kept of them.
    type Records: Watched<Wire = Self>;

    fn records(cluster: &Cluster) -> &Self::Records;

    /// As [`Self::records`], to change them.
    fn records_mut(cluster: &mut Cluster) -> &mut Self::Records;
}

macro_rules! kinds {
    ($($wire:ty => $field:ident: $records:ty,)*) => {$(
        impl Kind for $wire {
            type Records = $records;

            fn records(cluster: &Cluster) -> &$records {
                &cluster.$field
            }
            fn records_mut(cluster: &mut Cluster) -> &mut $records {
                &mut cluster.$field
            }
        }
    )*};
}

kinds! {
    KubeVirtWire => kubevirts: KubeVirts,
    VmimWire => vmims: Vmims,
    VmiWire => vmis: Vmis,
    ResourceQuotaWire => resource_quotas: ResourceQuotas,
    VmmrqWire => vmmrqs: Vmmrqs,
    HeadroomPolicyWire => policies: Policies,
    NamespaceWire => namespaces: HeadroomNamespaces,
    PodWire => launchers: Launchers,
    LimitRangeWire => limit_ranges: LimitRanges,
}

impl Cluster {
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
        self.resource_quotas.records_in(namespace).iter().map(|record| resolved(record, opted_out)).collect()
    }

    #[must_use]
    pub fn quota(&self, namespace: &str, name: &str) -> Option<NativeQuota> {
        let record = self.resource_quotas.record(namespace, name)?;
        Some(resolved(record, self.opted_out(namespace)))
    }
}

fn resolved(record: &ResourceQuotaRecord, opted_out: bool) -> NativeQuota {
    let mut quota = record.native();
    quota.opted_out |= opted_out;
    quota
}
