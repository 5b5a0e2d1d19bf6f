//! Commands for people: why something waits, what is held, who takes how much. They read with the user's own rights, and
//! need no process of Sluice.

pub mod check;
pub mod completion;
pub mod drain_check;
pub mod list;
pub mod top;
pub mod why;

mod cluster;
mod lists;
mod nearest;
mod printed;
mod world;
