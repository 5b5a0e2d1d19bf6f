//! What the accounts are made of. Each part keeps its own invariant behind private fields and knows no other concern; the
//! files of [accounts](super) compose them.

pub mod admissions;
pub mod evaluations;
pub mod foreign_charges;
pub mod growth;
pub mod held_targets;
pub mod owners;
pub mod pauses;
pub mod pod_stages;
pub mod quota_sets;
pub mod reclassification;
pub mod repricing;
pub mod sent;
pub mod shadow;
pub mod unevaluated;
