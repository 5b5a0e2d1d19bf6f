//! What is decided about head-room, without I/O (`docs/protocols.md`, *Head-room*).
//!
//! [`Opening`] lets one target pod in. Its driver executes one [`Command`] at a time and hands the [`Answer`] back; it may
//! stop anywhere: what is raised is an exact fit, the mark in the quota locks its namespace until the time it names, and a
//! sweep puts the quota right. [`Rests`] says which namespaces are left alone for a while; [`sweep`] which quotas are to be
//! restored.

mod opening;
mod rest;
mod sweep;
#[cfg(test)]
mod tests;
mod words;

pub use opening::{Opening, RENEWAL_MS, is_over};
pub use rest::{Backoff, Rests};
pub use sweep::{Left, sweep};
pub use words::{Answer, Command, Ending, Look, QuotaRef, Sight};
