//! What an installation of Sluice consists of: rendered objects and certificates.
//!
//! Everything here is data in, data out. `deploy/` is written from [`render`] (`make gen`), and tests install
//! exactly what is shipped.

mod account_policy;
mod admission_policies;
pub mod certificates;
mod exempt_policy;
mod expressions;
mod flow;
mod gate_policies;
mod headroom_policies;
mod network;
mod options;
mod platform_accounts;
mod rbac;
mod render;
mod vmi_policy;
mod webhooks;
mod workload;

pub use admission_policies::{AdmissionPolicy, admission_policies};
pub use options::{
    Gating, InstallOptions, WebhookClient, default_exempt_namespaces, default_namespace_selector,
};
pub use platform_accounts::PlatformAccounts;
pub use rbac::rancher_objects;
pub use render::render;
pub use webhooks::{mutating, validating};
