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

use crate::events;

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
    /// Something is granted.
    pub granted: bool,
    /// It is not proven that the admission policies are in force, so nothing is raised.
    pub unproven: bool,
}

/// Nothing is granted: migrations wait as they would without Sluice.
const NOT_GRANTED: &str = "HeadroomNotGranted";
/// An annotation excludes the namespace, or a quota that is exceeded.
const OPTED_OUT: &str = "HeadroomOptedOut";
/// KubeVirt's controller has not tried again since something changed.
const PENDING: &str = "PendingEvaluation";

impl Summary {
    /// All values of [`Self::reason`].
    pub(super) const REASONS: [&'static str; 6] =
        [NOT_GRANTED, OPTED_OUT, PENDING, events::NOT_PROVEN, events::FORBIDDEN, events::NOT_ENOUGH];

    /// Why its migrations wait, in the word of the event where one tells of it.
    pub(super) const fn reason(&self) -> &'static str {
        if !self.granted {
            NOT_GRANTED
        } else if self.unproven {
            events::NOT_PROVEN
        } else if self.forbidden.is_some() {
            events::FORBIDDEN
        } else if self.opted_out {
            OPTED_OUT
        } else if self.not_enough.is_some() {
            events::NOT_ENOUGH
        } else {
            PENDING
        }
    }
}

/// Of each namespace in which migrations wait.
pub type Summaries = Arc<Mutex<BTreeMap<Arc<str>, Summary>>>;
