//! The control loops: each observes, plans with a pure function, and applies.
//! `mtq_leftovers` observes once, and prints its plan.

mod aaq_conditions;
pub mod admission_config;
pub mod certificates;
mod compare;
mod conditions;
pub mod gate;
pub mod gating;
pub mod installation;
pub mod managed_quota;
pub mod mtq_leftovers;
mod owner;
mod pace;
pub mod presence;
mod troubles;

pub use troubles::AdmissionTroubles;
