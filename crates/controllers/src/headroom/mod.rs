//! Head-room outside of admission: raises that were left, migrations that are blocked, and what people are told.
//!
//! ```text
//!  watches ──▶ Observed ─┬─▶ sweep     restores quotas whose lock is over
//!                        ├─▶ blocked   wakes KubeVirt's controller, tells what is missing
//!                        └─▶ report    conditions of what grants head-room
//! ```

pub mod blocked;
mod metrics;
mod report;
mod status;
mod sweep;
mod tell;

pub use blocked::{BlockedConfig, BlockedMigrations};
pub use metrics::{BlockedCollector, BlockedMetrics, SweepMetrics};
pub use report::Reporter;
pub use sweep::Sweep;
pub use tell::{LEGACY_REASON, granted, reports};
