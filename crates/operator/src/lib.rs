//! What an installation of Sluice consists of: rendered objects and certificates.
//!
//! Everything here is data in, data out. `deploy/` is written from [`render`] (`make gen`), and tests install
//! exactly what is shipped.

pub mod certificates;
mod headroom_policies;
mod network;
mod options;
mod rbac;
mod render;
mod webhooks;
mod workload;

pub use headroom_policies::{charge_binding, charge_policy, lock_binding, lock_policy};
pub use options::{InstallOptions, WebhookClient, default_namespace_selector};
pub use rbac::rancher_objects;
pub use render::render;
pub use webhooks::{CREATOR_CHANGED, GATE_REMOVED, mutating, validating};
