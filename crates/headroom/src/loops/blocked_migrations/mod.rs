//! Migrations that a quota rejected: wakes KubeVirt's controller when they would be let in, and says what they lack.
//!
//! The webhook makes room for the pod that is then created; here nothing is raised. Nothing is asked of the API server
//! while nothing changes.

mod namespace;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub use run::BlockedMigrations;
pub(super) use run::leads;

/// What is to be said about a namespace in the conditions of what grants it head-room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many migrations wait that a quota rejected.
    pub blocked: usize,
    /// What is said of the first migration that waits although something is granted, and how many do.
    pub not_enough: Option<(Arc<str>, usize)>,
    /// Writing the status of a quota is refused; what the API server said.
    pub forbidden: Option<Arc<str>>,
    /// A quota that is exceeded is excluded by an annotation.
    pub opted_out: bool,
}

/// Of each namespace in which migrations wait.
pub type Summaries = Arc<Mutex<BTreeMap<Arc<str>, Summary>>>;
