//! Head-room outside of admission: raises that were left, migrations that are blocked, and what people are told.
//!
//! ```text
//!  watches ──▶ Observed ─┬─▶ sweep                restores quotas whose lock is over
//!                        ├─▶ blocked_migrations   wakes KubeVirt's controller, tells what is missing
//!                        └─▶ status_writer        conditions of what grants head-room; targets that are left
//! ```

pub mod blocked_migrations;
mod leftovers;
mod metrics;
mod status_patches;
mod status_writer;
mod sweep;

pub use blocked_migrations::BlockedMigrations;
pub use metrics::{BlockedCollector, LoopMetrics};
pub use status_writer::HeadroomStatusWriter;
pub use sweep::Sweep;
