//! The target pods of migrations that are let in, and how it went.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Uid;
use sluice_engine::headroom::{Need, Raise};

use crate::protocol::Ending;

/// A pod to be let in.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its uid.
    pub pod: Uid,
    /// What of a migration it is: its label `kubevirt.io`.
    pub role: Box<str>,
    /// The migration that it is for.
    pub migration: MigrationRef,
    /// What it takes.
    pub need: Need,
}

/// The migration that a target is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRef {
    /// Name of the VirtualMachineInstanceMigration.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Uid,
    /// Name of the VirtualMachineInstance.
    pub machine: Arc<str>,
    /// Its uid.
    pub machine_uid: Uid,
}

/// How a session went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// For whom it was.
    pub target: Target,
    /// How it ended.
    pub ending: Ending,
    /// What was raised.
    pub raises: Vec<Raise>,
    /// From the first raise to the last restore.
    pub raised_for: Duration,
}
