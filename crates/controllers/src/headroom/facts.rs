//! What a decision about one namespace depends on.

use std::sync::Arc;

use sluice_engine::Uid;
use sluice_engine::headroom::{Budget, NativeQuota};

use super::attempt::Attempt;

/// A namespace as it is seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceFacts {
    /// It must not get head-room.
    pub opted_out: bool,
    /// Its native quotas.
    pub quotas: Vec<NativeQuota>,
    /// What it may take above them.
    pub budget: Budget,
    /// Its window, if one exists.
    pub window: Option<WindowFacts>,
    /// Migrations that a quota rejected and that have no target, in the order they are served.
    pub blocked: Vec<BlockedFacts>,
    /// For each migration that counts against KubeVirt's limits, the node it leaves.
    pub running: Vec<Option<Arc<str>>>,
    /// Grows when a LimitRange of the namespace changes.
    pub limit_ranges: u64,
    /// Username of KubeVirt's controller; nobody is helped while it is not known.
    pub creator: Option<String>,
    /// How many migrations KubeVirt lets run at once.
    pub limits: Limits,
}

/// A window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowFacts {
    /// Unique to it.
    pub nonce: Arc<str>,
    /// When its lock ends, in seconds since the epoch by the API server's clock.
    pub until: i64,
}

/// A migration that a quota rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedFacts {
    /// Its identity.
    pub uid: Uid,
    /// Its name.
    pub name: Arc<str>,
    /// Its `resourceVersion`.
    pub version: Arc<str>,
    /// The virtual machine's name.
    pub machine: Arc<str>,
    /// The virtual machine's identity, as text.
    pub machine_uid: Arc<str>,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The last attempt for this migration.
    pub attempt: Option<Attempt>,
}

/// KubeVirt's limits of parallel migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In the cluster.
    pub cluster: usize,
    /// Away from one node.
    pub outbound: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // KubeVirt's defaults.
        Self { cluster: 5, outbound: 2 }
    }
}
