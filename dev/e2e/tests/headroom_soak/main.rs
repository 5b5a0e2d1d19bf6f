//! Head-room for longer than `make test` takes: when things go wrong ([`faults`]) and as tenants meet it ([`tenants`]).
//!
//! `make soak` runs one after the other: each has a Sluice of its own on the shared cluster with KubeVirt.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod faults;
mod tenants;
