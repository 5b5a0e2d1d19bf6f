//! The control loops: each observes, plans with a pure function, and applies.

pub mod certificates;
pub mod gate;
pub mod gating;
pub mod headroom;
pub mod hooks;
