//! Starts a real control plane with simulated nodes, for tests, the demo and benches.
//!
//! A [`Bed`] is one isolated Kubernetes: etcd, API server, controller-manager, scheduler and
//! KWOK in a directory of their own, on free loopback ports, with their own CA. Everything is
//! gone when it is dropped or when the process that holds it ends, however it ends.
//!
//! The programs are built from the Go modules in `testbed/` on first use and cached; Prometheus is Debian's.

pub mod artifacts;
pub mod audit;
mod bed;
pub mod debian;
mod kubeconfig;
pub mod kubevirt;
mod pki;
pub mod ports;
pub mod process;
mod program;
pub mod proxy;
mod relay;
mod virt_handler;
pub mod wait;

pub use bed::{Bed, BedOptions, Component, Identity, State, TestNamespace};
pub use program::{Exit, Program, ProgramSpec};
pub use virt_handler::SimulatedVirtHandler;
