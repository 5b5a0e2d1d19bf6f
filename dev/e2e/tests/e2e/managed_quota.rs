//! Keys that no gate governs are limited by a core ResourceQuota that Sluice keeps beside the quota.

mod kept;
mod limits;
mod refused;
mod team;
