//! Shows what cluster quotas' namespaces take: in the status of each `ApplicationAwareClusterResourceQuota`, and in a mirror
//! of it in each of its namespaces (`ApplicationAwareAppliedClusterResourceQuota`).
//!
//! All this is for people: what decides is the charge that the [gate](crate) records. So it may be late: changes are
//! collected for a second, and mirrors share one budget of writes, what their own namespace takes before the total.
//!
//! ```text
//!  gate (what changed) ─┐
//!  watches (what is) ───┴─▶ Planner ──▶ writes ──▶ API server
//! ```

mod digest;
mod mirror;
mod planner;
mod retries;
mod run;
mod status;
#[cfg(test)]
mod tests;

pub use planner::{MirrorNamespaces, Planner, Write};
pub use run::{ClusterQuotaStatus, MIRRORS};
