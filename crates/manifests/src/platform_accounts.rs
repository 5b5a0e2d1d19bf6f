//! Accounts of the platform that create pods for tenants, in the tenants' namespaces.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use sluice_api::names;

/// ServiceAccounts whose pods may name their node. As text: `namespace:name`, separated by commas.
///
/// CDI names the node of a pod that fills a claim for whose first consumer a node is selected already, which is every
/// import, upload and clone into a storage class with `WaitForFirstConsumer` (since CDI 1.57:
/// `pkg/controller/common/util.go`, `SetNodeNameIfPopulator`, and `pkg/controller/clone/prep-claim.go`). It creates them by
/// `cdi-sa` (`pkg/operator/resources/namespaced/controller.go`). KubeVirt's controller names no node: its attachment pods
/// have a node affinity (`pkg/virt-controller/services/template.go`, `RenderHotplugAttachmentPodTemplate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformAccounts(Vec<Account>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    namespace: String,
    name: String,
}

impl PlatformAccounts {
    /// Their usernames, as the API server reports them.
    pub fn usernames(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|Account { namespace, name }| names::service_account_username(namespace, name))
    }
}

/// That of CDI, where it is installed as its manifests say.
impl Default for PlatformAccounts {
    fn default() -> Self {
        Self(vec![Account { namespace: "cdi".to_owned(), name: "cdi-sa".to_owned() }])
    }
}

impl Display for PlatformAccounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (n, Account { namespace, name }) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{namespace}:{name}")?;
        }
        Ok(())
    }
}

impl FromStr for PlatformAccounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // No text is no account.
        let accounts = text.split(',').filter(|_| !text.is_empty());
        accounts.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;

    #[test]
    fn accounts_are_read_as_they_are_written() {
        for text in ["", "cdi:cdi-sa", "openshift-cnv:cdi-sa,storage:forklift-controller"] {
            assert_eq!(text.parse::<PlatformAccounts>().unwrap().to_string(), text);
        }
        let accounts: PlatformAccounts = "a:b,c:d".parse().unwrap();
        let usernames: Vec<_> = accounts.usernames().collect();
        assert_eq!(usernames, ["system:serviceaccount:a:b", "system:serviceaccount:c:d"]);
        assert_eq!(PlatformAccounts::default().to_string(), "cdi:cdi-sa");
        for wrong in ["cdi-sa", "cdi:", ":cdi-sa", "cdi:cdi-sa,", "cdi:cdi-sa, a:b", "a:b:c", "'a:b"] {
            assert!(wrong.parse::<PlatformAccounts>().is_err(), "{wrong:?}");
        }
    }
}
