//! Head-room: how the target pod of a live migration enters a full ResourceQuota.
//!
//! [`protocol`] decides and knows no I/O; [`Headroom`] carries out what a session asks for; [`ObservedLocks`] remembers the
//! locks of namespaces; [`StatusWriter`] writes quotas, and [`Proofs`] tell whether the admission policies are in force.
//! [`loops`] run in the controller that leads: they restore what was left, and wake migrations that are blocked.

mod attempts;
mod events;
mod executor;
mod headroom;
mod looks;
pub mod loops;
mod metrics;
mod observed_locks;
mod patches;
mod probes;
mod proofs;
pub mod protocol;
mod requests;
mod restore;
mod session_turns;
mod status_writer;
mod target;
mod told;
mod tools;

pub use events::granted;
pub use headroom::{Headroom, HeadroomSetup};
pub use metrics::HeadroomMetrics;
pub use observed_locks::ObservedLocks;
pub use patches::restore as restore_patch;
pub use proofs::Proofs;
pub use protocol::Ending;
pub use requests::Requests;
pub use status_writer::{StatusWriter, Written};
pub use target::{MigrationRef, Outcome, Target};
