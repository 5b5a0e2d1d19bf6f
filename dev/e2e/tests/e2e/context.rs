//! What the tests share.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client};
use sluice_api::ApplicationAwareResourceQuota;
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::{Setup, Shared};
use sluice_testbed::{Bed, TestNamespace, wait};
use tokio::sync::OnceCell;

/// How long anything may take that should take milliseconds: the machine may be busy with other tests.
pub const SOON: Duration = Duration::from_secs(30);

/// The control plane and the Sluice that tests share, started by the first that asks.
pub async fn shared() -> &'static Shared {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    SHARED
        .get_or_init(|| async {
            let bed = Bed::shared().await.unwrap();
            let controller_args = vec!["--in-flight-grace=3".to_owned()];
            let setup = Setup { controller_args, ..Setup::default() };
            let shared = Shared::on(bed, setup).await.unwrap();
            bed.add_nodes(1, &[("cpu", "1000"), ("memory", "4000Gi"), ("pods", "10000")]).await.unwrap();
            shared
        })
        .await
}

/// A targeted namespace and the means to look at it.
pub struct Team {
    pub namespace: TestNamespace,
    pub client: Client,
    pub pods: Api<Pod>,
    pub quotas: Api<ApplicationAwareResourceQuota>,
}

impl Team {
    /// A fresh targeted namespace on `bed`.
    pub async fn on(bed: &Bed, prefix: &str) -> Self {
        let namespace = bed.namespace(prefix, TARGETED).await.unwrap();
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
}

pub fn used_of(quota: Option<&ApplicationAwareResourceQuota>, key: &str) -> Option<String> {
    Some(quota?.status.as_ref()?.used.get(key)?.0.clone())
}

/// What kubectl printed; it has to succeed.
pub async fn kubectl(bed: &Bed, args: &[&str]) -> String {
    let (done, stdout, stderr) = kubectl_tries(bed, args).await;
    assert!(done, "kubectl {args:?}: {stdout}{stderr}");
    stdout
}

/// Whether kubectl succeeded, and what it printed to its two outputs.
pub async fn kubectl_tries(bed: &Bed, args: &[&str]) -> (bool, String, String) {
    let output = bed.kubectl(args).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Writes a manifest to a file in the bed's directory; returns its path.
pub fn manifest(bed: &Bed, name: &str, text: &str) -> String {
    let path = bed.dir().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}
