//! The gate: from a created pod to a released one (`docs/protocols.md`, *The gate*).
//!
//! ```text
//!  watches ──▶ observe ─┐
//!                       ├─▶ State ──▶ plan ──▶ actions ──▶ apply ──▶ outcomes ──▶ settle ─┐
//!                       └─────────────────────────────────────────────────────────────────┘
//! ```
//! Everything up to the actions is synchronous and free of I/O; requests run beside it. A pod is charged to its
//! quotas' status first, and its gate is removed when every one of them has recorded the charge.

mod action;
mod admitted;
mod apply;
mod audit;
mod config;
mod confirm;
mod contest;
mod expiry;
mod feed;
mod honour;
mod message;
mod metrics;
mod observe;
mod plan;
mod restaging;
mod run;
mod settle;
mod stage;
mod state;
mod stats;
mod targeting;
mod telling;
#[cfg(test)]
mod tests;

pub use action::{About, Action, Answer, Outcome, Record, Release, Tell};
pub use admitted::{Asked, Change, Judgement, Ticket};
pub use apply::{Apply, Concurrency};
pub use audit::{Found, Place};
pub use config::{GateConfig, Moment};
pub use metrics::{GateMetrics, QuotaCollector};
pub use run::{Gate, GateWatches};
pub use state::State;
pub use stats::Stats;
