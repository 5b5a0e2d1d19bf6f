//! Flags about pods that KubeVirt and CDI create in namespaces of tenants.

use std::str::FromStr;

use sluice_api::names;
use sluice_controllers::gate::{Platform, PlatformPods};

/// Which pods are the platform's, and whether they are charged.
#[derive(Debug, clap::Args)]
pub struct PlatformArgs {
    /// Whether pods that KubeVirt and CDI create beside those of VMs are charged to quotas and wait for room. They are known by
    /// who has created them, which tenants cannot set
    #[arg(long, value_enum, value_name = "HOW", default_value_t = How::WithVm)]
    platform_pods: How,
    /// ServiceAccounts all whose pods `--platform-pods=exempt` exempts. KubeVirt's controller is not to be named: of its pods
    /// the launchers of VMs are never exempt
    #[arg(long, value_name = "NAMESPACE:NAME", value_delimiter = ',', default_value = "cdi:cdi-sa")]
    platform_accounts: Vec<Account>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum How {
    /// Pods that attach volumes to a running VM are exempt while that VM is charged as one, so that its migrations never wait for
    /// room; all others are charged
    WithVm,
    /// None is charged: neither those nor servers of exports, importers, uploaders and cloners. Tenants can have any number of
    /// them
    Exempt,
    /// All are charged, as application-aware-quota does
    Counted,
}

/// A ServiceAccount.
#[derive(Clone, Debug)]
struct Account {
    namespace: String,
    name: String,
}

impl FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |part: &str| {
            let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !part.is_empty() && part.chars().all(is_allowed)
        };
        let (namespace, name) =
            text.split_once(':').filter(|(namespace, name)| is_name(namespace) && is_name(name)).ok_or_else(
                || format!("{text:?} is not a ServiceAccount: write namespace:name, like cdi:cdi-sa"),
            )?;
        if name == names::KUBEVIRT_CONTROLLER_ACCOUNT {
            return Err(format!(
                "{text:?} creates the launchers of VMs, which are never exempt: leave it out"
            ));
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
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
        let user = |account: &Account| names::service_account_username(&account.namespace, &account.name);
        Platform::new(pods, self.platform_accounts.iter().map(user))
    }
}
