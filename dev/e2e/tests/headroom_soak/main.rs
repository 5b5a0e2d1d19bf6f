//! What takes longer than `make test` may: head-room when things go wrong ([`faults`]) and as tenants meet it ([`tenants`]);
//! upgrades and removal of an installation under load ([`installation`]).
//!
//! `make soak` runs one after the other: each has a Sluice of its own on the shared cluster with KubeVirt.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod faults;
mod installation;
mod tenants;
