//! The control loops, and what is done once: each observes, plans with a pure function, and applies.

pub mod admission_config;
pub mod certificates;
pub mod cluster_quota_status;
mod conditions;
pub mod gate;
pub mod gating;
pub mod headroom;
pub mod managed_quota;
pub mod mtq_cleanup;
mod status_write;
