//! The window protocol without I/O: a machine that says what to do next and is told how it went.
//!
//! [`Opening`] lets one target in. Whoever drives it executes one [`Command`] at a time and hands the [`Answer`] back;
//! it may stop anywhere, for every state it leaves behind is safe: the lock opens by itself, what was raised is an exact
//! fit, and a sweep puts the rest right.

mod opening;
mod words;

pub use opening::Opening;
pub(crate) use opening::marked;
pub use words::{Answer, Command, Ending, QuotaRef, Theft};

#[cfg(test)]
mod tests;
