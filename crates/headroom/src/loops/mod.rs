//! Head-room outside of admission: raises that were left, migrations that are blocked, and what people are told.
//!
//! ```text
//!  watches ──▶ Observed ─┬─▶ sweep                restores quotas whose lock is over
//!                        ├─▶ blocked_migrations   wakes KubeVirt's controller, tells what is missing
//!                        └─▶ grant_status         conditions of what grants head-room; targets that are left
//! ```

pub mod blocked_migrations;
mod grant_status;
mod leftovers;
mod metrics;
mod sweep;

pub use blocked_migrations::BlockedMigrations;
pub use grant_status::GrantStatus;
pub use metrics::{BlockedCollector, LoopMetrics};
pub use sweep::Sweep;
