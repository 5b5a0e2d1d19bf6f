//! Head-room as tenants meet it: the scenarios of the field reports 003 and 004 with their own numbers, with and without
//! Rancher's webhook; webhooks beside Sluice's; tenants that try to take the room; managed-tenant-quota's behaviours.
//!
//! Tests share two clusters and have a namespace each. What changes a whole cluster is done in the second one, alone
//! ([`second_bed::alone`]).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod abuse;
mod held_lock;
mod mtq;
mod quota_history;
mod rancher;
mod scene;
mod second_bed;
mod seed_003;
mod seed_004;
mod siblings;
