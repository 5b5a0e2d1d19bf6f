//! A model of the window protocol that runs the production machine against everybody else: two API servers with views
//! of their own, virt-controller, tenants, an administrator, kube-controller-manager, crashes and lost answers.
//!
//! Time is what is left of a lock: enough for a raise, enough for one that was sent to be over, nothing. Amounts are
//! small. What the model leaves out: a quota that is created again has a status at once, a pod that quota admission has
//! charged exists, virt-controller and the administrator know how things are, and kube-controller-manager writes what it
//! has just read.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod actions;
mod admitted;
mod api;
mod driver;
mod fair;
mod guards;
mod restoring;
mod rules;
mod scenarios;
mod waits;
mod world;
