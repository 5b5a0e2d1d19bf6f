//! The parts of the gate's [`State`](super::State). Each keeps its own invariant behind private fields and knows no other
//! part; `state` composes them.

pub mod admissions;
pub mod confirmations;
pub mod contests;
pub mod evaluations;
pub mod foreign_charges;
pub mod growth;
pub mod held_targets;
pub mod owners;
pub mod pauses;
pub mod pod_stages;
pub mod quota_checks;
pub mod quota_sets;
pub mod reclassification;
pub mod repricing;
pub mod sent;
pub mod stamp;
pub mod status_writes;
