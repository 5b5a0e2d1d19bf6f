//! Live migrations.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::names;
use sluice_engine::Uid;

use crate::store::{Indexed, Key, Record, Store};
use crate::wire::MigrationWire;

/// How far a migration is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No target pod is known yet.
    #[default]
    Pending,
    /// It has a target pod, or waits for another cluster.
    Underway,
    /// It came to its end.
    Succeeded,
    /// It came to nothing.
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
pub struct Migration {
    /// `spec.vmiName`.
    pub machine: Box<str>,
    /// `status.phase`.
    pub phase: Phase,
    /// It says that its target pod was refused by a quota.
    pub rejected: bool,
    /// `spec.priority`.
    pub priority: MigrationPriority,
    /// The machine comes from elsewhere: there is no source pod in this namespace.
    pub receiving: bool,
}

/// A VirtualMachineInstanceMigration.
pub type MigrationRecord = Record<Migration>;

impl MigrationRecord {
    /// Reads a migration that did not come through a watch.
    #[must_use]
    pub fn read(wire: &MigrationWire) -> Self {
        Self::new(&wire.metadata, Migrations::body(wire))
    }

    /// Whether it has ended.
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
pub struct Migrations {
    store: Store<Migration>,
    by_uid: HashMap<Uid, Arc<MigrationRecord>>,
    waiting: BTreeSet<(Reverse<MigrationPriority>, i64, Key)>,
}

impl Migrations {
    /// One by its name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<MigrationRecord>> {
        self.store.get(namespace, name)
    }

    /// One by its uid.
    #[must_use]
    pub fn by_uid(&self, uid: &Uid) -> Option<&Arc<MigrationRecord>> {
        self.by_uid.get(uid)
    }

    /// Those of a namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> &[Arc<MigrationRecord>] {
        self.store.in_namespace(namespace)
    }

    /// How many a quota keeps waiting that are to be served before this one of the same namespace.
    #[must_use]
    pub fn ahead_of(&self, record: &MigrationRecord) -> usize {
        let waiting = self.in_namespace(&record.namespace).iter().filter(|other| other.is_waiting());
        waiting.filter(|other| rank(other) < rank(record)).count()
    }

    /// Those that a quota keeps waiting, in the order they are to be served: priority, then age, then name.
    pub fn rejected(&self) -> impl Iterator<Item = &Arc<MigrationRecord>> {
        self.waiting.iter().filter_map(|(.., key)| self.store.get(&key.namespace, &key.name))
    }
}

fn rank(record: &MigrationRecord) -> (Reverse<MigrationPriority>, i64, Key) {
    (Reverse(record.priority), record.created, record.key())
}

impl Indexed for Migrations {
    type Wire = MigrationWire;
    type Body = Migration;

    fn store_mut(&mut self) -> &mut Store<Migration> {
        &mut self.store
    }
    fn meta(wire: &MigrationWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &MigrationWire) -> Migration {
        let conditions = wire.status.conditions.iter().flatten();
        Migration {
            machine: wire.spec.vmi_name.as_deref().unwrap_or_default().into(),
            phase: Phase::read(wire.status.phase.as_deref()),
            rejected: conditions
                .into_iter()
                .any(|condition| condition.kind == names::REJECTED_CONDITION && condition.status == "True"),
            priority: MigrationPriority::read(wire.spec.priority.as_deref()),
            receiving: wire.spec.receive.is_some(),
        }
    }
    fn link(&mut self, record: &Arc<MigrationRecord>) {
        self.by_uid.insert(record.uid.clone(), Arc::clone(record));
        if record.is_waiting() {
            self.waiting.insert(rank(record));
        }
    }
    fn unlink(&mut self, record: &Arc<MigrationRecord>) {
        self.by_uid.remove(&record.uid);
        self.waiting.remove(&rank(record));
    }
}
