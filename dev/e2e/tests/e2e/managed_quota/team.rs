//! A namespace with a quota of keys that no gate governs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota, names};
use sluice_e2e::call::{Response, post};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, wait};
use tokio::sync::OnceCell;

use crate::context::{SOON, idle_options};
use crate::team::Team;

pub const ARQ_COUNT: &str = "count/applicationawareresourcequotas.aaq.kubevirt.io";

/// Sluice beside a kube-controller-manager that counts again every few seconds: it knows kinds that are younger than itself,
/// as those of Sluice here, only half a minute later, and counts them at its next round.
pub async fn counting() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    let start = || async {
        let controller_manager_args = vec!["--resource-quota-sync-period=3s".to_owned()];
        let bed = Bed::start_shared(BedOptions { controller_manager_args, ..idle_options() }).await.unwrap();
        Running::on(bed, Setup::default()).await.unwrap()
    };
    SHARED.get_or_init(start).await
}

/// A namespace, and what there is of managed quotas.
pub struct Managed {
    pub team: Team,
    pub quotas: Api<ResourceQuota>,
}

impl Managed {
    /// A fresh namespace that no gate looks at: managed quotas do not need one.
    pub async fn on(bed: &Bed, prefix: &str) -> Self {
        let team = Team::with(bed, prefix, &[]).await;
        let quotas = Api::namespaced(team.client.clone(), &team.namespace.name);
        Self { team, quotas }
    }

    /// Creates an object of the namespace, by its path.
    pub async fn post(&self, rest: &str, object: &Value) -> Response {
        post(&self.team.client, &self.team.path(rest), object).await.unwrap()
    }

    pub async fn create(&self, rest: &str, object: &Value) {
        let answer = self.post(rest, object).await;
        assert!(answer.is_ok(), "{rest}: {answer:?}");
    }

    pub async fn config_map(&self, name: &str) {
        self.create("configmaps", &json!({ "metadata": { "name": name } })).await;
    }

    /// Changes the specification of a quota.
    pub async fn edit(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.team.quotas.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The quota wants something else and then the same again: what was repaired before does not put off what follows.
    pub async fn wish_again(&self, name: &str, n: usize) {
        let hard = [("configmaps", "5"), ("services", "2")];
        let other = (100 + n).to_string();
        self.edit(name, json!({ "hard": { "services": other } })).await;
        self.until_limited(name, &[hard[0], ("services", &other)]).await;
        self.edit(name, json!({ "hard": { "services": "2" } })).await;
        self.until_limited(name, &hard).await;
    }

    /// Changes the managed quota as an administrator could.
    pub async fn tamper(&self, name: &str, patch: Value) {
        let name = names::managed_quota(name);
        self.quotas.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete_managed(&self, name: &str) {
        self.quotas.delete(&names::managed_quota(name), &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the status of the quota says exactly this of these keys; `None`: nothing.
    pub async fn until_used(&self, name: &str, used: &[(&str, Option<&str>)]) {
        let says = |quota: Option<&ApplicationAwareResourceQuota>| {
            let now = quota.and_then(|quota| quota.status.as_ref()).map(|status| &status.used);
            now.is_some_and(|now| {
                used.iter().all(|(key, amount)| now.get(*key).map(|now| now.0.as_str()) == *amount)
            })
        };
        wait::wait_for(&self.team.quotas, name, SOON, &format!("{used:?}"), says).await.unwrap();
    }

    /// Waits until the managed quota is as it should be with these limits, and enforces them.
    pub async fn until_limited(&self, name: &str, hard: &[(&str, &str)]) -> ResourceQuota {
        let uid = self.team.quotas.get(name).await.unwrap().metadata.uid;
        let hard: BTreeMap<String, Quantity> =
            hard.iter().map(|(key, amount)| ((*key).to_owned(), Quantity((*amount).to_owned()))).collect();
        let right = |quota: Option<&ResourceQuota>| {
            quota.is_some_and(|quota| {
                let owners = quota.metadata.owner_references.as_deref().unwrap_or_default();
                let owned = matches!(owners, [owner] if Some(&owner.uid) == uid.as_ref()
                    && owner.controller == Some(true) && owner.block_owner_deletion == Some(true)
                    && owner.kind == "ApplicationAwareResourceQuota");
                let label = quota.metadata.labels.as_ref().and_then(|labels| labels.get("aaq.kubevirt.io"));
                let limits = [
                    quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()),
                    quota.status.as_ref().and_then(|status| status.hard.as_ref()),
                ];
                owned && label.is_some_and(|value| value == "true") && limits == [Some(&hard); 2]
            })
        };
        let managed = names::managed_quota(name);
        wait::wait_for(&self.quotas, &managed, SOON, "the managed quota", right).await.unwrap();
        self.quotas.get(&managed).await.unwrap()
    }

    pub async fn until_no_managed(&self, name: &str) {
        let managed = names::managed_quota(name);
        let what = "the managed quota to be gone";
        wait::wait_for(&self.quotas, &managed, SOON, what, |quota| quota.is_none()).await.unwrap();
    }

    /// Waits until the condition about keys that nothing enforces has all of this text; empty: until there is none.
    pub async fn until_told(&self, name: &str, said: &[&str]) {
        let told = |quota: Option<&ApplicationAwareResourceQuota>| {
            let conditions = quota.and_then(|quota| quota.status.as_ref()).map(|status| &status.conditions);
            let message =
                conditions.and_then(|all| all.iter().find(|one| one.type_ == names::UNCOUNTED_KEYS));
            match message {
                Some(condition) => {
                    !said.is_empty() && said.iter().all(|text| condition.message.contains(text))
                }
                None => conditions.is_some() && said.is_empty(),
            }
        };
        wait::wait_for(&self.team.quotas, name, SOON, &format!("{said:?}"), told).await.unwrap();
    }

    /// Takes down what each version of each quota's status says of `key`, until the answer is dropped.
    pub async fn record(&self, key: &'static str) -> Recording {
        let version = self.team.quotas.list(&Default::default()).await.unwrap().metadata.resource_version;
        let (quotas, seen) = (self.team.quotas.clone(), Arc::new(Mutex::new(Vec::new())));
        let into = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let params = WatchParams::default().timeout(290);
            let mut events = quotas.watch(&params, &version.unwrap()).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                let (WatchEvent::Added(quota) | WatchEvent::Modified(quota)) = event.unwrap() else {
                    continue;
                };
                let used = quota.status.and_then(|status| status.used.get(key).cloned());
                into.lock().unwrap().push(used.map(|amount| amount.0));
            }
        });
        Recording { seen, task }
    }
}

/// See [`Managed::record`].
pub struct Recording {
    seen: Arc<Mutex<Vec<Option<String>>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Recording {
    /// The different values in their order, once the last of them is `last`.
    pub async fn until(self, last: Option<&str>) -> Vec<Option<String>> {
        let there = || async {
            let seen = self.seen.lock().unwrap();
            (seen.last().is_some_and(|value| value.as_deref() == last)).then_some(())
        };
        wait::eventually(SOON, there, &format!("the watch to show {last:?}")).await.unwrap();
        self.task.abort();
        let mut seen = self.seen.lock().unwrap().clone();
        seen.dedup();
        seen
    }
}
