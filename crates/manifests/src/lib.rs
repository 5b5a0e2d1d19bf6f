//! What an installation of Sluice consists of: rendered objects and certificates.
//!
//! Everything here is data in, data out. `deploy/` is written from [`render`] (`make gen`), and tests install
//! exactly what is shipped.

mod account_policy;
mod admission_policies;
mod alerts;
mod asked;
mod cert_manager;
pub mod certificates;
mod config;
mod critical_pods;
mod evaluator_policy;
mod exact;
mod exempt_policy;
mod expressions;
mod flow;
mod gate_policies;
mod headroom_policies;
mod kubernetes;
mod monitoring;
mod naming;
mod network;
mod object;
mod of_evaluator;
mod options;
mod options_file;
mod pause_policy;
mod placement;
mod platform_accounts;
mod pod_options;
mod pod_template;
mod policy;
mod rbac;
mod render;
mod resources;
mod review_policy;
mod security;
mod services;
mod sidecars;
pub mod uninstall;
mod validate;
mod vmi_policy;
mod webhooks;
mod workload;

pub use admission_policies::{admission_policies, is_standing};
pub use asked::AskedOfPods;
pub use cert_manager::{cert_manager_rights, certificate};
pub use exact::Exact;
pub use kubernetes::{KubernetesVersion, UnknownVersion};
pub use monitoring::monitoring_objects;
pub use naming::{PartNames, account_looked_for, naming_rights};
pub use of_evaluator::OfEvaluator;
pub use options::{
    Gating, InstallOptions, Installation, IssuerRef, Monitoring, NamespaceUse, Naming, Platform, PullPolicy,
    WebhookClient, default_exempt_namespaces, default_namespace_selector,
};
pub use options_file::{NotOptions, OptionsFile, TolerationEntry};
pub use platform_accounts::PlatformAccounts;
pub use pod_options::{DnsPolicy, PerComponent, PodOptions};
pub use policy::AdmissionPolicy;
pub use rbac::{rancher_objects, removal_rights};
pub use render::{admission_objects, crds, default_aaq, install_objects, operand_objects, render};
pub use resources::{Amounts, Resources};
pub use sidecars::NoPlace;
pub use validate::InvalidOption;
pub use webhooks::{mutating, validating};
