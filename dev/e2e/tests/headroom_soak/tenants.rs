//! Head-room as tenants meet it: the scenarios of two field reports (`docs/predecessors.md`) with their own numbers, with
//! and without Rancher's webhook; webhooks beside Sluice's; tenants that try to take the room; managed-tenant-quota's
//! behaviours.
//!
//! Tests share two clusters and have a namespace each. What changes a whole cluster is done in the second one, alone
//! ([`second_bed::alone`]).

mod abuse;
mod harvester;
mod held_lock;
mod mtq;
mod overhead_ratio;
mod quota_history;
mod rancher;
mod scene;
mod second_bed;
mod siblings;
mod ten_namespaces;
mod upgrade;
