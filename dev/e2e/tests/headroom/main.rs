//! Head-room outside of admission, with the real virt-controller: the sweep, the reactive path, what people are told,
//! and what a managed-tenant-quota left behind.
//!
//! Most tests share one cluster without our webhook ([`context::cluster`]), where every target is rejected at first, and
//! have a namespace each. Those that need something else start their own, a few at a time ([`context::turn`]).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod context;
mod mtq_leftovers;
mod not_enough;
mod reactive;
mod steady;
mod sweep;
mod window;
