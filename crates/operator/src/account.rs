//! The account that others look for under the names of application-aware-quota (`Naming::Aaq`), as its operator keeps it:
//! what is changed of it is put back. One that is deleted comes again with the manifest alone: the operator may make none.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use serde_json::Value;
use sluice_manifests::{InstallOptions, account_looked_for};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::certificates::LoopError;
use crate::certificates::observe::{Seen, follow_one};
use crate::one_object::keep_one;

/// The `account` if `is` has not its labels.
fn wanted(account: &Value, is: &Seen<ServiceAccount>) -> Option<Value> {
    let Seen::Present(is) = is else { return None };
    let labels = account.pointer("/metadata/labels").and_then(Value::as_object);
    let has = is.metadata.labels.as_ref();
    let holds = labels
        .into_iter()
        .flatten()
        .all(|(key, value)| has.and_then(|has| has.get(key)).map(String::as_str) == value.as_str());
    (!holds).then(|| account.clone())
}

/// Keeps it until `shutdown`, if the installation has one. Start it once the lease is held; `may_write` is asked before each
/// write.
///
/// # Errors
/// When something has to be written and `may_write` says no.
pub async fn keep_account(
    client: Client,
    options: InstallOptions,
    may_write: impl Fn() -> bool,
    shutdown: CancellationToken,
) -> Result<(), LoopError> {
    let named = account_looked_for(&options).map(|account| (account, options.naming.parts().controller));
    let Some((account, name)) = named else {
        shutdown.cancelled().await;
        return Ok(());
    };
    let api: Api<ServiceAccount> = Api::namespaced(client, &options.namespace);
    let (seen, is) = watch::channel(Seen::Unknown);
    let (_stays, rests_on) = watch::channel(account);
    tokio::select! {
        result = keep_one(&api, name, (rests_on, is), wanted, may_write) => result,
        () = follow_one(api.clone(), name, seen, shutdown.clone()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use sluice_manifests::Naming;

    use super::*;

    fn account() -> Value {
        let options = InstallOptions { naming: Naming::Aaq, ..InstallOptions::default() };
        account_looked_for(&options).unwrap()
    }

    #[test]
    fn a_label_that_is_changed_is_put_back_and_those_of_others_stay() {
        let account = account();
        let is: ServiceAccount = serde_json::from_value(account.clone()).unwrap();
        let is_with = |key: &str, value: Option<&str>| {
            let (mut is, value) = (is.clone(), value.map(str::to_owned));
            let labels = is.metadata.labels.get_or_insert_default();
            match value {
                Some(value) => drop(labels.insert(key.to_owned(), value)),
                None => drop(labels.remove(key)),
            }
            Seen::Present(is)
        };
        let label = sluice_api::names::MANAGED_LABEL;
        assert_eq!(wanted(&account, &is_with("team", Some("a"))), None);
        for changed in [is_with(label, Some("bad")), is_with(label, None)] {
            assert_eq!(wanted(&account, &changed), Some(account.clone()));
        }
        assert_eq!(wanted(&account, &Seen::Unknown), None);
        assert_eq!(wanted(&account, &Seen::Absent), None);
    }

    #[test]
    fn under_its_own_names_an_installation_has_none() {
        assert_eq!(account_looked_for(&InstallOptions::default()), None);
    }
}
