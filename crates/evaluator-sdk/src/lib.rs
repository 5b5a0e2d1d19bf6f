//! Write a sidecar evaluator: a program that says what a pod takes from quotas.
//!
//! Sluice's controller asks it over a Unix socket, by the protocol of application-aware-quota, whose controller can ask it
//! as well. An evaluator is a type with one function:
//!
//! ```no_run
//! use sluice_evaluator_sdk::{Answer, Error, Evaluator, OtherPods, Pod, run};
//!
//! /// Each pod of the class `licensed` takes one licence, whatever else it takes.
//! struct Licences;
//!
//! impl Evaluator for Licences {
//!     fn evaluate(&self, pod: &Pod, _others: &OtherPods) -> Result<Answer, Error> {
//!         let spec = pod.object()?.spec.as_ref();
//!         if spec.and_then(|spec| spec.priority_class_name.as_deref()) != Some("licensed") {
//!             return Ok(Answer::NoMatch);
//!         }
//!         Ok(Answer::charge([("example.com/license", "1")]))
//!     }
//! }
//!
//! fn main() -> Result<(), sluice_evaluator_sdk::ServeError> {
//!     run(Licences)
//! }
//! ```
//!
//! * **The same question has the same answer.** Answers are kept; a pod is asked about again when it changes, or in the
//!   background. Read neither clocks nor random numbers.
//! * **An error holds the pod.** It is tried again, and its text is shown to the pod's owner: write what they can do.
//!   Never answer "nothing" because something failed.
//! * **Answer within a second.** A later answer counts as none. Calls run side by side on threads of their own.
//! * **Rest on what a tenant cannot change later**: resources, priority class, runtime class. Labels and annotations of a
//!   running pod are the tenant's.
//! * [`OtherPods`] are there only where the evaluator is configured to get them.
//!
//! `sluice evaluator check --socket PATH` tries an evaluator without a cluster.

#![warn(missing_docs)]

mod answer;
mod error;
mod evaluator;
mod native;
mod pod;
pub mod protocol;
mod serve;

pub use answer::Answer;
pub use error::Error;
pub use evaluator::Evaluator;
pub use pod::{OtherPods, Pod};
pub use serve::{DIRECTORY, ServeError, run, serve};

pub use sluice_engine::{Amount, Charge, Resource};
