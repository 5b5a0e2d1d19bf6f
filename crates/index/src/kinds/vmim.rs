//! VirtualMachineInstanceMigrations: live migrations.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use sluice_api::names;
use sluice_engine::Uid;

use super::kubevirt::{ConditionWire, kubevirt_kind};
use crate::store::{Indexed, Record, Store};

/// A live migration.
#[derive(Clone, Debug, Deserialize)]
pub struct VmimWire {
    /// Name, namespace, uid, version and times, and the annotation that says how long the target may be pending; nothing
    /// else is filled.
    #[serde(deserialize_with = "crate::meta::of_migration")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: VmimSpecWire,
    /// The part of the status that matters here.
    #[serde(default)]
    pub status: VmimStatusWire,
}
kubevirt_kind!(VmimWire, "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations");

/// `spec` of a VirtualMachineInstanceMigration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmimSpecWire {
    /// Which virtual machine.
    #[serde(default)]
    pub vmi_name: Option<String>,
    /// Set where the machine comes from another cluster or namespace (decentralised migration); KubeVirt 1.6 and later.
    #[serde(default)]
    pub receive: Option<serde::de::IgnoredAny>,
    /// `system-critical`, `user-triggered` or `system-maintenance`; KubeVirt 1.6 and later.
    #[serde(default)]
    pub priority: Option<String>,
}

/// `status` of a VirtualMachineInstanceMigration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmimStatusWire {
    /// How far it is.
    #[serde(default)]
    pub phase: Option<String>,
    /// What is true of it.
    #[serde(default)]
    pub conditions: Option<Vec<ConditionWire>>,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No target pod is known yet.
    #[default]
    Pending,
    /// The migration has a target pod, or waits for another cluster.
    Underway,
    /// The machine runs on its new node.
    Succeeded,
    /// The machine stays where it was.
    Failed,
}

impl Phase {
    fn read(text: Option<&str>) -> Self {
        match text {
            None | Some("" | "Pending") => Self::Pending,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some(_) => Self::Underway,
        }
    }
}

/// KubeVirt's order of migrations that wait; the last is served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MigrationPriority {
    /// None is given, or one that is not known.
    #[default]
    Unset,
    /// `system-maintenance`.
    SystemMaintenance,
    /// `user-triggered`.
    UserTriggered,
    /// `system-critical`.
    SystemCritical,
}

impl MigrationPriority {
    fn read(text: Option<&str>) -> Self {
        match text {
            Some("system-critical") => Self::SystemCritical,
            Some("user-triggered") => Self::UserTriggered,
            Some("system-maintenance") => Self::SystemMaintenance,
            _ => Self::Unset,
        }
    }
}

/// What is kept of a VirtualMachineInstanceMigration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmim {
    /// `spec.vmiName`.
    pub machine: Box<str>,
    /// `status.phase`.
    pub phase: Phase,
    /// The migration says that a quota refused its target pod.
    pub rejected: bool,
    /// `spec.priority`.
    pub priority: MigrationPriority,
    /// The machine comes from elsewhere: there is no source pod in this namespace.
    pub receiving: bool,
    /// For so many seconds from its creation on the target pod may be pending. The account that creates the migration
    /// chooses it: any number.
    pub pending_timeout: i64,
}

impl Vmim {
    /// [`Self::pending_timeout`] where the migration says nothing that can be read
    /// (`pkg/virt-controller/watch/migration/migration.go`, `defaultCatchAllPendingTimeoutSeconds`, in KubeVirt 1.0 to 1.8).
    pub const DEFAULT_PENDING_TIMEOUT: i64 = 900;

    /// As `getCatchAllPendingTimeoutSeconds` does, with Go's `strconv.Atoi`.
    fn pending_timeout(meta: &ObjectMeta) -> i64 {
        let text = meta.annotations.as_ref().and_then(|known| known.get(names::PENDING_TIMEOUT_ANNOTATION));
        text.and_then(|text| text.parse().ok()).unwrap_or(Self::DEFAULT_PENDING_TIMEOUT)
    }
}

/// A VirtualMachineInstanceMigration.
pub type VmimRecord = Record<Vmim>;

impl VmimRecord {
    /// Reads a migration that did not come through a watch.
    #[must_use]
    pub fn read(wire: &VmimWire) -> Self {
        Self::new(&wire.metadata, Vmims::body(wire))
    }

    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self.body.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether a quota keeps it from getting its target pod: KubeVirt leaves the mark on migrations that have got
    /// one in the meantime, or have failed.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.body.rejected && self.body.phase == Phase::Pending && !self.deleting
    }
}

/// All VirtualMachineInstanceMigrations.
#[derive(Debug, Default)]
pub struct Vmims {
    store: Store<Vmim>,
    by_uid: HashMap<Uid, Arc<VmimRecord>>,
}

impl Vmims {
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VmimRecord>> {
        self.store.get(namespace, name)
    }

    #[must_use]
    pub fn by_uid(&self, uid: &Uid) -> Option<&Arc<VmimRecord>> {
        self.by_uid.get(uid)
    }

    /// Those of a namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> &[Arc<VmimRecord>] {
        self.store.in_namespace(namespace)
    }

    /// Those of a namespace that a quota keeps waiting, in the order they are to be served: priority, then age, then name.
    #[must_use]
    pub fn waiting_in(&self, namespace: &str) -> Vec<&Arc<VmimRecord>> {
        let mut waiting: Vec<_> =
            self.in_namespace(namespace).iter().filter(|record| record.is_waiting()).collect();
        waiting.sort_by_key(|record| rank(record));
        waiting
    }

    /// Those that a quota keeps waiting anywhere, in no order.
    pub fn rejected(&self) -> impl Iterator<Item = &Arc<VmimRecord>> {
        self.store.iter().filter(|record| record.is_waiting())
    }
}

fn rank(record: &VmimRecord) -> (Reverse<MigrationPriority>, i64, Arc<str>) {
    (Reverse(record.priority), record.created, Arc::clone(&record.name))
}

impl Indexed for Vmims {
    type Wire = VmimWire;
    type Body = Vmim;

    fn store_mut(&mut self) -> &mut Store<Vmim> {
        &mut self.store
    }
    fn meta(wire: &VmimWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &VmimWire) -> Vmim {
        let conditions = wire.status.conditions.iter().flatten();
        Vmim {
            machine: wire.spec.vmi_name.as_deref().unwrap_or_default().into(),
            phase: Phase::read(wire.status.phase.as_deref()),
            rejected: conditions
                .into_iter()
                .any(|condition| condition.kind == names::REJECTED_CONDITION && condition.status == "True"),
            priority: MigrationPriority::read(wire.spec.priority.as_deref()),
            receiving: wire.spec.receive.is_some(),
            pending_timeout: Vmim::pending_timeout(&wire.metadata),
        }
    }
    fn link(&mut self, record: &Arc<VmimRecord>) {
        self.by_uid.insert(record.uid.clone(), Arc::clone(record));
    }
    fn unlink(&mut self, record: &Arc<VmimRecord>) {
        self.by_uid.remove(&record.uid);
    }
}
