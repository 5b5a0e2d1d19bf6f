//! Stands in for a storage driver: each claim of a namespace gets a volume that no node has to attach.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use sluice_testbed::Bed;
use tokio::task::JoinHandle;

/// The class of claims that are served: the default one of the cluster.
pub const CLASS: &str = "simulated";

/// The driver at work in one namespace. It ends when it is dropped.
pub struct SimulatedProvisioner(JoinHandle<()>);

impl SimulatedProvisioner {
    /// # Errors
    /// When the API server refuses the storage class.
    pub async fn start(bed: &Bed, namespace: &str) -> anyhow::Result<Self> {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": { "name": CLASS, "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
            "provisioner": "simulated.test/none", "volumeBindingMode": "Immediate", "reclaimPolicy": "Retain",
        });
        bed.apply_objects([class]).await?;
        Ok(Self(tokio::spawn(serve(bed.admin()?, namespace.to_owned()))))
    }
}

impl Drop for SimulatedProvisioner {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(client: Client, namespace: String) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let volumes: Api<PersistentVolume> = Api::all(client);
    let mut seen = watcher(claims, watcher::Config::default()).applied_objects().boxed();
    while let Some(event) = seen.next().await {
        let Ok(claim) = event else { continue };
        let spec = claim.spec.clone().unwrap_or_default();
        if spec.volume_name.is_some() || spec.storage_class_name.as_deref() != Some(CLASS) {
            continue;
        }
        let volume = serde_json::from_value(json!({
            "metadata": { "name": format!("{namespace}-{}", claim.name_any()) },
            "spec": {
                "accessModes": spec.access_modes,
                "capacity": spec.resources.and_then(|resources| resources.requests),
                "claimRef": { "namespace": namespace, "name": claim.name_any(), "uid": claim.uid() },
                "hostPath": { "path": "/simulated" },
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": CLASS,
                "volumeMode": spec.volume_mode,
            },
        }));
        // One that is there already was made for an earlier event of the same claim.
        if let Ok(volume) = volume {
            let _ = volumes.create(&PostParams::default(), &volume).await;
        }
    }
}
