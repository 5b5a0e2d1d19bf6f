//! Head-room with the real virt-controller: what the webhook lets in, what the controller wakes and tells, what the sweep
//! puts back, and what a managed-tenant-quota left behind.
//!
//! Most tests have a namespace each in one cluster ([`sluice_e2e::tenant::shared`]). Those that change what counts
//! everywhere take turns in a second one ([`context::alone`]).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod account;
mod balancer;
mod context;
mod forbidden;
mod forged_status;
mod interface;
mod mtq_examples;
mod mtq_leftovers;
mod not_enough;
mod only_migration;
mod reactive;
mod share;
mod steady;
mod sweep;
mod volumes;
mod window;
