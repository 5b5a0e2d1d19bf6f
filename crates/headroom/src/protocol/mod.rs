//! What is decided about head-room, without I/O (`docs/protocols.md`, *Head-room*).
//!
//! [`WindowSession`] lets one target pod in. Its driver executes one [`Command`] at a time and hands the [`Done`] back; it
//! may stop anywhere: what is raised is an exact fit, the mark in the quota locks its namespace until the time it names, and
//! a sweep puts the quota right. [`Rests`] says which namespaces are left alone for a while; [`sweep`] which quotas are to
//! be restored.

mod messages;
mod rest;
mod session;
mod sweep;
#[cfg(test)]
mod tests;

pub use messages::{Command, Done, Ending, Look, QuotaRef, Snapshot};
pub use rest::{Rests, Usage};
pub use session::{RENEWAL_MS, WindowSession, at_once, is_over};
pub use sweep::{Left, sweep};
