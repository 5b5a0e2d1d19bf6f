//! Flags about pods that KubeVirt and CDI create in namespaces of tenants.

use sluice_gate::{Platform, PlatformPods};
use sluice_manifests::PlatformAccounts;

/// Which pods are the platform's, and whether they are charged.
#[derive(Debug, clap::Args)]
pub struct PlatformArgs {
    /// Whether pods that KubeVirt and CDI create beside those of VMs are charged to quotas and wait for room. They are known
    /// by who has created them, which tenants cannot set
    #[arg(long, value_enum, value_name = "HOW", default_value_t = How::WithVm)]
    platform_pods: How,
    #[command(flatten)]
    accounts: PlatformAccountsArgs,
}

/// Whose pods are all the platform's. Controller, webhook and operator are given the same.
#[derive(Debug, clap::Args)]
pub struct PlatformAccountsArgs {
    /// ServiceAccounts, separated by commas, that create pods for tenants in the tenants' namespaces. Their pods may name
    /// their node, and then are not gated; `--platform-pods=exempt` of the controller exempts them. KubeVirt's controller is
    /// not to be named: of its pods the launchers of VMs are never exempt
    #[arg(long, value_name = "NAMESPACE:NAME", default_value_t = PlatformAccounts::default())]
    pub platform_accounts: PlatformAccounts,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum How {
    /// Pods that attach volumes to a running VM are exempt while that VM is charged as one, so that its migrations never
    /// wait for room; all others are charged
    WithVm,
    /// None is charged: neither those nor servers of exports, importers, uploaders and cloners. Tenants can have any number
    /// of them
    Exempt,
    /// All are charged, as application-aware-quota does
    Counted,
}

impl PlatformArgs {
    /// What the gate has to know of it.
    #[must_use]
    pub fn platform(&self) -> Platform {
        let pods = match self.platform_pods {
            How::WithVm => PlatformPods::WithMachine,
            How::Exempt => PlatformPods::Exempt,
            How::Counted => PlatformPods::Counted,
        };
        Platform::new(pods, self.accounts.platform_accounts.usernames())
    }
}
