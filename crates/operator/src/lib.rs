//! The control loops of the operator: each observes, plans with a pure function, and applies.
//!
//! The objects they keep are made by `sluice-manifests`.

mod account;
pub mod admission_config;
pub mod certificates;
mod compare;
pub mod installation;
mod one_object;
mod owner;
mod pace;
pub mod presence;
mod troubles;
mod version;

pub use account::keep_account;
pub use troubles::AdmissionTroubles;
