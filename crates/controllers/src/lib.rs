//! Control loops of the leading controller beside the gate and head-room: each observes, plans with a pure function, and
//! applies. `mtq_leftovers` observes once, and prints its plan.

pub mod evaluators;
pub mod gating;
pub mod managed_quota;
pub mod mtq_leftovers;
