//! A namespace with quotas of Sluice.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::ApplicationAwareResourceQuota;
use sluice_e2e::call::{Response, post};
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_runtime::client::{ClientOptions, connect};
use sluice_testbed::{Bed, TestNamespace, wait};

use crate::context::{SOON, used_of};

/// A namespace and the means to look at it.
pub struct Team {
    pub namespace: TestNamespace,
    pub client: Client,
    pub pods: Api<Pod>,
    pub quotas: Api<ApplicationAwareResourceQuota>,
}

impl Team {
    /// A fresh targeted namespace on `bed`.
    pub async fn on(bed: &Bed, prefix: &str) -> Self {
        Self::with(bed, prefix, TARGETED).await
    }

    /// As [`Self::on`], with a client that tries nothing again by itself.
    pub async fn plain(bed: &Bed, prefix: &str) -> Self {
        let mut team = Self::on(bed, prefix).await;
        let kubeconfig = Some(bed.admin_kubeconfig().to_owned());
        team.client = connect(&ClientOptions { kubeconfig, ..ClientOptions::default() }).await.unwrap();
        team.pods = Api::namespaced(team.client.clone(), &team.namespace.name);
        team
    }

    /// A fresh namespace with these labels.
    pub async fn with(bed: &Bed, prefix: &str, labels: &[(&str, &str)]) -> Self {
        let namespace = bed.namespace(prefix, labels).await.unwrap();
        let client = bed.admin().unwrap();
        Self {
            pods: Api::namespaced(client.clone(), &namespace.name),
            quotas: Api::namespaced(client.clone(), &namespace.name),
            namespace,
            client,
        }
    }

    pub async fn quota(&self, name: &str, hard: &[(&str, &str)]) {
        objects::create(&self.client, &self.namespace.name, &objects::quota(name, hard)).await.unwrap();
    }

    pub async fn pod(&self, name: &str, requests: &[(&str, &str)]) -> Pod {
        objects::create(&self.client, &self.namespace.name, &objects::pod(name, requests)).await.unwrap()
    }

    pub async fn until_released(&self, name: &str) {
        let what = "the pod to be released";
        wait::wait_for(&self.pods, name, SOON, what, |pod| pod.is_some_and(|pod| !is_held(pod)))
            .await
            .unwrap();
    }

    /// Waits until exactly `count` pods of the namespace are without our gate.
    pub async fn until_released_count(&self, count: usize) {
        let released = |pods: &[Pod]| pods.iter().filter(|pod| !is_held(pod)).count() == count;
        let what = format!("{count} pods to be released");
        wait::wait_for_all(&self.pods, watcher::Config::default(), SOON, &what, released).await.unwrap();
    }

    /// Waits until the status of a quota says that `key` is `used`.
    pub async fn until_used(&self, quota: &str, key: &str, used: &str) {
        let what = format!("{key} used to be {used}");
        let says =
            |quota: Option<&ApplicationAwareResourceQuota>| used_of(quota, key).as_deref() == Some(used);
        wait::wait_for(&self.quotas, quota, SOON, &what, says).await.unwrap();
    }

    pub async fn held(&self) -> Vec<String> {
        let pods = self.pods.list(&kube::api::ListParams::default()).await.unwrap();
        pods.items.iter().filter(|pod| is_held(pod)).filter_map(|pod| pod.metadata.name.clone()).collect()
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub async fn create(&self, pod: &Value) -> Response {
        self.create_by(&self.client, pod).await
    }

    pub async fn create_by(&self, client: &Client, pod: &Value) -> Response {
        post(client, &self.path("pods"), pod).await.unwrap()
    }

    /// What would become of a new pod.
    pub async fn tries(&self, pod: &Value) -> Response {
        post(&self.client, &self.path("pods?dryRun=All"), pod).await.unwrap()
    }

    /// Waits until the pods are these many and all are without our gate.
    pub async fn until_all_released(&self, count: usize) {
        let released = |pods: &[Pod]| pods.len() == count && pods.iter().all(|pod| !is_held(pod));
        let what = format!("{count} pods to be released");
        wait::wait_for_all(&self.pods, watcher::Config::default(), SOON, &what, released).await.unwrap();
    }

    /// Waits until there are these many pods; returns them.
    pub async fn until_pods(&self, count: usize) -> Vec<Pod> {
        let there = |pods: &[Pod]| pods.len() >= count;
        let what = format!("{count} pods to be created");
        wait::wait_for_all(&self.pods, watcher::Config::default(), SOON, &what, there).await.unwrap()
    }

    pub async fn label(&self, labels: Value) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        namespaces.patch(&self.namespace.name, &PatchParams::default(), &patch).await.unwrap();
    }
}
