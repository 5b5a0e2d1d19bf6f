//! Head-room outside of admission: what was left raised, who was rejected, and what people are told (design §6).
//!
//! ```text
//!  watches ──▶ Observed, Sights ──▶ facts ──▶ State::plan ──▶ actions ──▶ apply ──▶ outcomes ──▶ State::settle ─┐
//!                                                └──────────────────────────────────────────────────────────────┘
//! ```
//! The sweep is level-triggered: a quota that is raised without a window, or a window whose time is over, is cleared
//! whoever left it. The reactive path opens a window for a migration that a quota rejected; writing the quota wakes
//! KubeVirt's controller. `report` keeps conditions, `leftovers` ends what managed-tenant-quota left behind.

mod action;
mod apply;
mod attempt;
mod config;
mod facts;
mod leftovers;
mod metrics;
mod observe;
mod place;
mod plan;
mod report;
mod run;
mod settle;
mod sights;
mod state;
mod stats;
mod status;
mod summary;
mod tell;
#[cfg(test)]
mod tests;

pub use action::{Action, Tell};
pub use apply::Apply;
pub use config::ReactiveConfig;
pub use leftovers::Leftovers;
pub use metrics::{BlockedCollector, ReactiveMetrics};
pub use place::NUDGE_KEY;
pub use report::Reporter;
pub use run::Reactive;
pub use tell::{LEGACY_REASON, reports};
