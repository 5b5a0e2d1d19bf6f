//! Quotas over the namespace of a test and `default`, by the names of namespaces.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Patch, PostParams};
use serde_json::{Value, json};
use sluice_api::{
    ApplicationAwareAppliedClusterResourceQuota as Mirror, ApplicationAwareClusterResourceQuota as Acrq,
    QuotaAmounts, names,
};
use sluice_e2e::objects::from_json;
use sluice_testbed::wait;

use super::spec::{Spec, pod};
use crate::context::SOON;

/// How long upstream's suite waits for the namespaces of a status.
const NAMESPACES_SHOWN: Duration = Duration::from_secs(10);
const EXCLUDED: &str = "do.not/include";

struct Shared {
    spec: Spec,
    quotas: Api<Acrq>,
    name: String,
}

impl Shared {
    async fn new(name: &str) -> Self {
        let spec = Spec::new(name).await;
        let quotas = Api::all(spec.team.client.clone());
        Self { spec, quotas, name: name.to_owned() }
    }

    fn own(&self) -> &str {
        &self.spec.team.namespace.name
    }

    /// The test's namespace and `default`, unless one has the label that excludes it.
    async fn quota(&self, name: &str, quota: Value) {
        let object: Acrq = from_json(json!({
            "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
            "metadata": { "name": name },
            "spec": { "quota": quota, "selector": { "labels": { "matchExpressions": [
                { "key": "kubernetes.io/metadata.name", "operator": "In", "values": [self.own(), "default"] },
                { "key": EXCLUDED, "operator": "DoesNotExist" },
            ] } } },
        }));
        self.quotas.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn until(&self, name: &str, within: Duration, what: &str, holds: impl Fn(&Acrq) -> bool + Send) {
        wait::wait_for(&self.quotas, name, within, what, |quota| quota.is_some_and(&holds)).await.unwrap();
    }

    /// Waits until nothing is used, in both namespaces: neither has a pod.
    async fn until_empty(&self, name: &str, key: &str) {
        self.until(name, NAMESPACES_SHOWN, "both namespaces, without usage", |quota| {
            let nothing = |amounts: &QuotaAmounts| amounts.used.get(key).is_some_and(|used| used.0 == "0");
            let Some(status) = &quota.status else { return false };
            let listed = status.namespaces.as_deref().unwrap_or_default();
            nothing(&status.total)
                && listed.iter().all(|entry| nothing(&entry.status))
                && namespaces(quota) == self.both()
        })
        .await;
    }

    fn both(&self) -> Vec<&str> {
        let mut both = vec![self.own(), "default"];
        both.sort_unstable();
        both
    }

    async fn exclude(&self, value: Value) {
        self.spec.team.label(json!({ EXCLUDED: value })).await;
    }

    async fn until_mirror(
        &self,
        namespace: &str,
        what: &str,
        holds: impl Fn(Option<&Mirror>) -> bool + Send,
    ) {
        let mirrors = Api::<Mirror>::namespaced(self.spec.team.client.clone(), namespace);
        wait::wait_for(&mirrors, &self.name, SOON, what, holds).await.unwrap();
    }

    /// Waits until both mirrors say what the quota says, of the limits and of what is used.
    async fn until_mirrored(&self) {
        for namespace in self.both() {
            let mirrors = Api::<Mirror>::namespaced(self.spec.team.client.clone(), namespace);
            let same = || async {
                let quota = self.quotas.get(&self.name).await.ok()?;
                let mirror = mirrors.get_opt(&self.name).await.ok()??;
                let (shown, there) = (mirror.status?, quota.status?);
                (mirror.spec.quota == quota.spec.quota
                    && mirror.spec.selector == quota.spec.selector
                    && shown.total == there.total
                    && shown.total.hard == quota.spec.quota.hard
                    && shown.namespaces == there.namespaces)
                    .then_some(())
            };
            wait::eventually(SOON, same, &format!("the mirror in {namespace}")).await.unwrap();
        }
    }
}

fn namespaces(quota: &Acrq) -> Vec<&str> {
    let status = quota.status.iter().flat_map(|status| status.namespaces.iter().flatten());
    let mut names: Vec<_> = status.map(|entry| entry.namespace.as_str()).collect();
    names.sort_unstable();
    names
}

fn memory(amount: &str) -> Value {
    json!({ "hard": { "requests.memory": amount }, "scopes": ["NotTerminating"] })
}

#[tokio::test]
async fn a_namespace_that_gets_another_label_leaves_the_quota_and_its_pod_is_released() {
    let shared = Shared::new("leaves").await;
    let (name, spec) = (&shared.name, &shared.spec);
    shared.quota(name, memory("1Mi")).await;
    shared.until_empty(name, "requests.memory").await;
    spec.pod(&pod("test-pod", &[("memory", "200Mi")], &[])).await;
    spec.until_gated("test-pod", name).await;
    shared.exclude(json!("")).await;
    shared.until(name, NAMESPACES_SHOWN, "default alone", |quota| namespaces(quota) == ["default"]).await;
    spec.until_not_gated("test-pod").await;
}

#[tokio::test]
async fn a_quota_that_is_deleted_releases_what_it_held() {
    let shared = Shared::new("deleted").await;
    let (spec, wider) = (&shared.spec, format!("{}2", shared.name));
    for (name, amount) in [(&shared.name, "100Mi"), (&wider, "300Mi")] {
        shared.quota(name, memory(amount)).await;
        shared.until_empty(name, "requests.memory").await;
    }
    spec.pod(&pod("test-pod", &[("memory", "200Mi")], &[])).await;
    spec.until_gated("test-pod", &shared.name).await;
    shared.quotas.delete(&shared.name, &DeleteParams::default()).await.unwrap();
    spec.until_not_gated("test-pod").await;
    let used = |quota: &Acrq| {
        let status = quota.status.as_ref();
        status
            .and_then(|status| status.total.used.get("requests.memory"))
            .is_some_and(|used| used.0 == "200Mi")
    };
    shared.until(&wider, SOON, "the pod to be counted", used).await;
}

#[tokio::test]
async fn mirrors_say_what_the_quota_says() {
    let shared = Shared::new("mirrored").await;
    let quota = |pods: &str, memory: &str, scope: &str, class: &str| {
        let classes = json!({ "scopeName": "PriorityClass", "operator": "NotIn", "values": [class] });
        json!({
            "hard": { "pods": pods, "requests.memory": memory }, "scopes": [scope],
            "scopeSelector": { "matchExpressions": [classes] },
        })
    };
    shared.quota(&shared.name, quota("10", "1Gi", "NotTerminating", "pclass1")).await;
    shared.until_mirrored().await;
    let patch = json!({ "spec": { "quota": quota("50", "5Gi", "Terminating", "pclass2") } });
    let changed = shared.quotas.patch(&shared.name, &Default::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(changed.spec.quota.hard["pods"].0, "50");
    shared.until_mirrored().await;
}

#[tokio::test]
async fn mirrors_are_where_the_quota_selects() {
    let shared = Shared::new("where").await;
    shared.quota(&shared.name, json!({ "hard": { "pods": "10" } })).await;
    for (excluded, is_there) in [(json!(null), true), (json!(""), false), (json!(null), true)] {
        shared.exclude(excluded).await;
        let what = format!("there: {is_there}");
        shared.until_mirror(shared.own(), &what, |mirror| mirror.is_some() == is_there).await;
        shared.until_mirror("default", "there", |mirror| mirror.is_some()).await;
    }
}
