//! The client against evaluators: one in Go that does what libsidecar does, one by the SDK, and servers that break rules.
//!
//! With `SLUICE_UPSTREAM_EVALUATOR=<program>` the tests that `upstream` is part of run on application-aware-quota's own
//! example, which makes its socket in `/var/run/aaq-sockets`: each gets a mount namespace, so they need root.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod calls;
mod check;
mod discovery;
mod failures;
mod hostile;
mod policy;
mod sdk;
mod sidecar;
