//! What an installation of Sluice consists of: rendered objects and certificates.
//!
//! Everything here is data in, data out. `deploy/` is written from [`render`] (`make gen`), and tests install
//! exactly what is shipped.

pub mod certificates;
mod options;
mod rbac;
mod render;
mod webhooks;
mod window_policy;
mod workload;

pub use options::{InstallOptions, WebhookClient, default_namespace_selector};
pub use render::render;
pub use webhooks::{CREATOR_CHANGED, GATE_REMOVED, mutating, validating};
pub use window_policy::{window_binding, window_policy};
