//! A model of head-room that runs the production machine, plan and sweep against all that goes on beside them: informers
//! and watches that lag, pods in flight, quota admission, both admission policies, kube-controller-manager, an
//! administrator, crashes and lost answers.
//!
//! Modelled are:
//! * one or two API servers with a cache each, and quota admission in one namespace or two, of one quota or several;
//! * sessions that read what is granted, quotas and pods one after the other, so that anything may happen in between;
//! * replicas of the webhook, each with watches, a memory of locks and a queue of sessions of its own. In [`replicas`]
//!   either is asked about any attempt of any migration, so both raise, rest, clear and restore at the same quotas at once;
//! * the sweep of the controller, twice at once while one leader follows another;
//! * what is granted to a namespace, and a pool that namespaces share;
//! * migrations that succeed and leave overhead, that are refused by another webhook, and that leave their target behind;
//! * pods of tenants, an administrator, kube-controller-manager, a process that crashes or is held up,
//!   and answers that are lost.
//!
//! [`properties`] says what always holds, [`guards`] that it does not hold without each part of the protocol.
//!
//! Time passes in steps of 7 s: a lock of 10 s holds for one of them and is over after two. Amounts are small. What the
//! model leaves out: clocks of API servers that differ, quotas that are deleted or have scopes, a controller that is away
//! for good beside replicas that go on, and quota admission that gives a pod up after several conflicts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod actions;
mod cluster;
mod driver;
mod ends;
mod facts;
mod guards;
mod looks;
mod memory;
mod properties;
mod replicas;
mod rules;
mod scenarios;
mod world;
