//! The control loops, and what is done once: each observes, plans with a pure function, and applies.

pub mod certificates;
pub mod gate;
pub mod gating;
pub mod headroom;
pub mod hooks;
pub mod mtq_leftovers;
mod status_write;
