//! Migrations that a quota rejected: wakes KubeVirt's controller when they would be let in, and says what they lack.
//!
//! The webhook makes room for the pod that is then created; here nothing is raised. Nothing is asked of the API server
//! while nothing changes.

mod messages;
mod namespace_state;
mod plan;
mod run;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use messages::{Action, BlockedEvent, BlockedFacts, Done, NamespaceFacts, QuotaName, Summary};
pub use run::BlockedMigrations;
pub(super) use run::leads;
pub use state::{State, Stats};

/// Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct BlockedConfig {
    /// How long KubeVirt's controller gets to notice by itself that there is room.
    pub nudge_after_ms: u64,
    /// The least time between two nudges in one namespace.
    pub nudge_spacing_ms: u64,
    /// The least time between two events that tell of one migration.
    pub tell_spacing_ms: u64,
    /// Waits after failures: the first, and the longest.
    pub retry: (Duration, Duration),
    /// Waits after writes that are refused. The first are short: an API server that has just started refuses what it allows a
    /// moment later.
    pub forbidden_retry: (Duration, Duration),
}

impl Default for BlockedConfig {
    fn default() -> Self {
        Self {
            nudge_after_ms: 1_000,
            nudge_spacing_ms: 500,
            tell_spacing_ms: 5_000,
            retry: (Duration::from_secs(1), Duration::from_secs(60)),
            forbidden_retry: (Duration::from_secs(1), Duration::from_secs(900)),
        }
    }
}
