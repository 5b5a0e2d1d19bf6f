//! Head-room as tenants meet it: their abuse of it, Harvester's and Rancher's world, managed-tenant-quota's behaviours.
//!
//! Tests share one cluster and have a namespace each; those that change what a whole cluster sees use another one, in
//! turns ([`apart::apart`]).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod abuse;
mod apart;
mod chronicle;
mod harvester;
mod mtq;
mod trail;
