//! Sluice on a test bed: what every suite, the demo and the benches need.
//!
//! The programs are the real ones, with exactly the RBAC that is shipped: controller, webhook and operator run
//! beside the control plane as processes with tokens of their own service accounts.

pub mod audit;
pub mod browser;
pub mod build;
pub mod call;
pub mod history;
pub mod installation;
pub mod intruders;
pub mod kubelet;
pub mod metrics;
pub mod objects;
pub mod pair;
pub mod probe;
pub mod programs;
pub mod random;
pub mod reappliers;
pub mod removal;
pub mod running;
pub mod scrape;
pub mod service;
mod shipped;
pub mod simulated_harvester;
pub mod simulated_kubelet;
pub mod simulated_provisioner;
pub mod simulated_proxy;
pub mod simulated_rancher;
pub mod simulated_webhook;
pub mod targets;
pub mod tenant;
pub mod traffic;
pub mod upstream;
pub mod wire;

pub use installation::{Installation, Setup};
pub use programs::{Controller, Webhook};
pub use running::Running;
