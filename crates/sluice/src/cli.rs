//! Commands for people: why something waits, what is held, who takes how much. They read with the user's own rights, and
//! need no process of Sluice.

pub mod bundle;
pub mod check;
pub mod cluster;
pub mod completion;
pub mod dashboard;
pub mod drain_check;
pub mod list;
pub mod top;
pub mod why;

mod evaluated;
mod headroom;
mod lists;
pub mod nearest;
pub mod printed;
mod proven;
mod world;
