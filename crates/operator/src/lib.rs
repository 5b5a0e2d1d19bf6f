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
mod kubernetes;
mod network;
mod object;
mod options;
mod pause_policy;
mod placement;
mod platform_accounts;
mod policy;
mod rbac;
mod render;
mod resources;
mod security;
pub mod uninstall;
mod validate;
mod vmi_policy;
mod webhooks;
mod workload;

pub use admission_policies::admission_policies;
pub use kubernetes::{KubernetesVersion, UnknownVersion};
pub use options::{
    Gating, InstallOptions, NamespaceUse, Platform, PullPolicy, WebhookClient, default_exempt_namespaces,
    default_namespace_selector,
};
pub use platform_accounts::PlatformAccounts;
pub use policy::AdmissionPolicy;
pub use rbac::rancher_objects;
pub use render::{admission_objects, crds, default_aaq, install_objects, render};
pub use resources::{Amounts, Resources};
pub use validate::InvalidOption;
pub use webhooks::{mutating, validating};
