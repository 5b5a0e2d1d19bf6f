//! A model of head-room that runs the production machine, plan and sweep against all that goes on beside them: informers
//! and watches that lag, pods in flight, quota admission, both admission policies, kube-controller-manager, an administrator,
//! crashes and lost answers.
//!
//! Time passes in steps of 7 s: a lock of 10 s holds for one of them and is over after two. Amounts are small. What the model
//! leaves out: clocks of API servers that differ, quotas that are deleted or have scopes, and quota admission that gives
//! a pod up after several conflicts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod actions;
mod cluster;
mod driver;
mod ends;
mod guards;
mod properties;
mod rules;
mod scenarios;
mod world;
