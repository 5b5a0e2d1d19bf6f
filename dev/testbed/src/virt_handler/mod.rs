//! A simulated virt-handler: what KubeVirt's node agents write about VMs and migrations.
//!
//! There is no hypervisor behind it. For every VM that virt-controller hands to a node it says
//! what a healthy node would say, or what the VM's [`MigrationScript`] asks for.

mod guest;
mod step;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::oneshot;

use crate::Identity;
use crate::kubevirt::kinds;
pub use step::MigrationScript;
use step::{Launcher, Step, next};

/// Pause before a refused write is tried again, and before one that has its time is looked at again.
const RETRY: Duration = Duration::from_millis(200);

/// The node agents of all nodes, on a thread and runtime of their own; dropping it stops them.
pub struct SimulatedVirtHandler {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SimulatedVirtHandler {
    /// Starts it with the rights of this identity.
    ///
    /// # Errors
    /// When its thread or its client cannot be made.
    pub fn start(identity: &Identity) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = {
            let _entered = runtime.enter();
            identity.client()?
        };
        let thread = std::thread::Builder::new().name("virt-handler".into());
        let thread = thread
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = run(client) => {}
                        _ = stopped => {}
                    }
                });
            })
            .context("starting the simulated virt-handler")?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SimulatedVirtHandler {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Label with the uid of the VMI that a launcher runs.
const CREATED_BY: &str = "kubevirt.io/created-by";
/// Annotations that the simulated kubelet ends a pod by.
const COMPLETE_AFTER: &str = "sluice.dev/complete-after";
const COMPLETE_AS: &str = "sluice.dev/complete-as";

async fn run(client: Client) {
    let vmis = kinds::all(&client, &kinds::vmi());
    Controller::new_with(vmis, watcher::Config::default(), kinds::vmi())
        .run(reconcile, |_, _, _| Action::requeue(RETRY), Arc::new(client))
        .for_each(|_| async {})
        .await;
}

/// One step; what it writes is the event that leads to the next one.
async fn reconcile(vmi: Arc<DynamicObject>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let namespace = vmi.metadata.namespace.clone().unwrap_or_default();
    let written = match next(&vmi, &now) {
        None => return Ok(Action::await_change()),
        Some(Step::Wait) => return Ok(Action::requeue(RETRY)),
        Some(Step::Write(fresh)) => write(&client, &namespace, &fresh).await,
        Some(Step::EndPod { pod, exit_code, then }) => {
            for pod in launchers(&client, &vmi, &pod).await? {
                end_pod(&client, pod, exit_code, &now).await?;
            }
            write(&client, &namespace, &then).await
        }
    };
    match written {
        // Another client wrote meanwhile, which is an event of its own.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Action::await_change()),
        written => written.map(|()| Action::await_change()),
    }
}

/// The whole object, under its version: a merge patch would drop the nulls in conditions, and
/// virt-controller's own patches test the old value, nulls included.
async fn write(client: &Client, namespace: &str, vmi: &DynamicObject) -> Result<(), kube::Error> {
    let vmis = kinds::namespaced(client, &kinds::vmi(), namespace);
    let name = vmi.metadata.name.clone().unwrap_or_default();
    vmis.replace(&name, &PostParams::default(), vmi).await.map(drop)
}

/// The pods that are meant and still run.
async fn launchers(client: &Client, vmi: &DynamicObject, meant: &Launcher) -> Result<Vec<Pod>, kube::Error> {
    let namespace = vmi.metadata.namespace.clone().unwrap_or_default();
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let of_vmi = ListParams::default().labels(&format!("{CREATED_BY}={uid}"));
    let mut pods = Api::<Pod>::namespaced(client.clone(), &namespace).list(&of_vmi).await?.items;
    pods.retain(|pod| meant.is(pod) && !has_ended(pod));
    Ok(pods)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The launcher exits: the pod is terminal, and the quota gets its share back.
async fn end_pod(client: &Client, pod: Pod, exit_code: i32, now: &str) -> Result<(), kube::Error> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let name = &pod.metadata.name.clone().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let (phase, reason) = if exit_code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    // The simulated kubelet may be about to write that the pod runs: told like this, it ends the pod again.
    let told = json!({"metadata": {"annotations": {COMPLETE_AFTER: "0s", COMPLETE_AS: phase}}});
    match pods.patch(name, &PatchParams::default(), &Patch::Merge(told)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        told => told.map(drop)?,
    }
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let ended: Vec<_> = containers
        .iter()
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "",
                "ready": false, "started": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": now}},
            })
        })
        .collect();
    let condition = |name: &str| {
        json!({
            "type": name, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now,
        })
    };
    let status = json!({"status": {
        "phase": phase,
        "conditions": [condition("Ready"), condition("ContainersReady")],
        "containerStatuses": ended,
    }});
    match pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => patched.map(drop),
    }
}
