//! The target pods of migrations that are let in, and how it went.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Uid;
use sluice_engine::headroom::{Need, Raise};
use sluice_index::{VmiRecord, VmimRecord};

use crate::protocol::Ending;

/// A pod to be let in.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub pod: Uid,
    /// The pod attaches volumes to the migration's launcher; otherwise it is that launcher.
    pub attaches: bool,
    pub migration: MigrationRef,
    pub need: Need,
}

impl Target {
    pub(crate) const fn namespace(&self) -> &Arc<str> {
        &self.migration.namespace
    }
}

/// A migration, and the machine that it moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRef {
    /// The namespace of both.
    pub namespace: Arc<str>,
    /// Name of the VirtualMachineInstanceMigration.
    pub name: Arc<str>,
    pub uid: Uid,
    /// Name of the VirtualMachineInstance.
    pub machine: Arc<str>,
    pub machine_uid: Uid,
}

impl MigrationRef {
    #[must_use]
    pub fn new(migration: &VmimRecord, machine: &VmiRecord) -> Self {
        Self {
            namespace: Arc::clone(&migration.namespace),
            name: Arc::clone(&migration.name),
            uid: migration.uid.clone(),
            machine: Arc::clone(&machine.name),
            machine_uid: machine.uid.clone(),
        }
    }
}

/// How a session went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// For whom it was.
    pub target: Target,
    pub ending: Ending,
    pub raises: Vec<Raise>,
    /// From the first raise to the last restore.
    pub raised_for: Duration,
}
