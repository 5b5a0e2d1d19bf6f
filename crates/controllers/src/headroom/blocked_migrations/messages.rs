//! What the plan is made from, what it asks for and what it is told.

use std::sync::Arc;

use sluice_engine::Uid;
use sluice_engine::headroom::{Budget, NativeQuota, Need};
use sluice_window::MigrationRef;

/// A namespace as it is seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceFacts {
    /// It must not get head-room.
    pub opted_out: bool,
    /// Its native quotas.
    pub quotas: Vec<NativeQuota>,
    /// What it may take above them.
    pub budget: Budget,
    /// Migrations that a quota rejected and that have no target, by priority, then age, then name.
    pub blocked: Vec<BlockedFacts>,
    /// Grows when a LimitRange of the namespace changes.
    pub limit_ranges: u64,
}

/// A migration that a quota rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedFacts {
    /// Which one.
    pub migration: MigrationRef,
    /// Its `resourceVersion`.
    pub version: Arc<str>,
}

/// A quota by its name and identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaName {
    /// Namespace of the quota.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
}

/// Something to do. At most one of those that ask the API server is under way in a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Find out what the source of this migration takes.
    Look(MigrationRef),
    /// Wake KubeVirt's controller: write this quota without changing what it says.
    Nudge(QuotaName),
    /// Tell people. Not answered.
    Publish(BlockedEvent),
}

/// What people are told. Each is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockedEvent {
    /// The budget is not enough for a migration.
    NotEnough {
        /// For whom.
        blocked: MigrationRef,
        /// What is missing, in one sentence.
        sentence: Arc<str>,
    },
    /// Head-room cannot help a migration.
    Refused {
        /// For whom.
        blocked: MigrationRef,
        /// Why.
        sentence: Arc<str>,
    },
    /// Writing the status of a quota is refused.
    Forbidden {
        /// The quota.
        quota: QuotaName,
        /// Migrations that wait for it.
        blocked: Vec<MigrationRef>,
        /// What the API server said.
        said: Arc<str>,
    },
}

/// How an [`Action`] went.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// This is what the source takes; `None` if there is none.
    Looked(Uid, Option<Need>),
    /// The quota was written.
    Nudged,
    /// Writing the status of a quota is refused.
    Forbidden(Arc<str>),
    /// To be tried again later.
    Failed,
}

/// What is to be said about a namespace in the conditions of what grants it head-room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What the first migration lacks, in one sentence, and how many lack something.
    pub not_enough: Option<(Arc<str>, usize)>,
    /// Writing the status of a quota is refused; what the API server said.
    pub forbidden: Option<Arc<str>>,
    /// It, or a quota that is exceeded, is excluded by an annotation.
    pub opted_out: bool,
}
