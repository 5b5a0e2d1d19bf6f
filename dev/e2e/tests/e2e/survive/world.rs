//! A control plane with Sluice's objects, gated pods and an observer of what is released.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use sluice_api::names;
use sluice_e2e::objects::{self, is_held};
use sluice_e2e::{Controller, Installation, Setup};
use sluice_testbed::proxy::FaultProxy;
use sluice_testbed::{Bed, Identity};
use tokio::task::JoinHandle;

use crate::team::Team;

/// A lease that is over soon, so that a test does not wait long for the next leader.
const LEASE: [&str; 3] = ["--lease-duration=4s", "--lease-renew-deadline=2s", "--lease-retry-period=500ms"];

/// Sluice's objects on `bed`, without the webhook.
pub async fn installed(bed: &Bed) -> Installation<'_> {
    let mut controller_args: Vec<String> = LEASE.iter().map(|arg| (*arg).to_owned()).collect();
    controller_args.push("--in-flight-grace=4".to_owned());
    Installation::apply(bed, Setup { controller_args, without_webhook: true, ..Setup::default() })
        .await
        .unwrap()
}

pub async fn controller_identity(bed: &Bed) -> Identity {
    bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await.unwrap()
}

/// A proxy between the controller and the API server.
pub async fn proxy(bed: &Bed) -> FaultProxy {
    FaultProxy::start(bed, &controller_identity(bed).await).await.unwrap()
}

/// A controller that speaks through `proxy`.
pub async fn controller_through(installation: &Installation<'_>, proxy: &FaultProxy) -> Controller {
    installation.controller_with(proxy.kubeconfig(), &[]).await.unwrap()
}

/// A pod as the webhook would have made it.
pub fn gated(name: &str, requests: &[(&str, &str)]) -> Pod {
    let mut pod = objects::pod(name, requests);
    if let Some(spec) = &mut pod.spec {
        spec.scheduling_gates = Some(vec![PodSchedulingGate { name: names::GATE.to_owned() }]);
    }
    pod
}

impl Team {
    pub async fn gated_pod(&self, name: &str, requests: &[(&str, &str)]) {
        objects::create(&self.client, &self.namespace.name, &gated(name, requests)).await.unwrap();
    }

    pub async fn gated_pods(&self, count: usize) {
        let creates =
            (0..count).map(|n| async move { self.gated_pod(&format!("p{n:03}"), &[("cpu", "100m")]).await });
        futures::stream::iter(creates).buffer_unordered(8).collect::<Vec<_>>().await;
    }
}

/// Watches how many pods are without our gate at the same time.
pub struct Overseer {
    most: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Overseer {
    /// Of a namespace.
    pub fn of(team: &Team) -> Self {
        Self::over(team.pods.clone())
    }

    pub fn over(pods: Api<Pod>) -> Self {
        let most = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let task = tokio::spawn(async move {
            let mut released = BTreeSet::new();
            let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Init) => released.clear(),
                    Ok(Event::InitApply(pod) | Event::Apply(pod)) => {
                        let running = !matches!(
                            pod.status.as_ref().and_then(|status| status.phase.as_deref()),
                            Some("Succeeded" | "Failed")
                        );
                        let uid = pod.metadata.uid.clone();
                        if is_held(&pod) || !running {
                            released.remove(&uid)
                        } else {
                            released.insert(uid)
                        };
                    }
                    Ok(Event::Delete(pod)) => {
                        released.remove(&pod.metadata.uid);
                    }
                    Ok(Event::InitDone) | Err(_) => {}
                }
                seen.fetch_max(released.len(), Ordering::SeqCst);
            }
        });
        Self { most, task }
    }

    /// The most pods that were released at the same time so far.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Drop for Overseer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asserts that exactly `count` pods are released, that there never were more, and that the quota says so.
pub async fn settles_at(team: &Team, overseer: &Overseer, count: usize) {
    team.until_released_count(count).await;
    team.until_used("compute", "pods", &count.to_string()).await;
    assert!(overseer.most() <= count, "{} pods were released at the same time, {count} fit", overseer.most());
    assert_eq!(released(&team.pods).await, count);
}

/// Deletes so many pods that are released.
pub async fn delete_released(team: &Team, count: usize) {
    let pods = team.pods.list(&kube::api::ListParams::default()).await.unwrap();
    let now = kube::api::DeleteParams::default().grace_period(0);
    for pod in pods.items.iter().filter(|pod| !is_held(pod)).take(count) {
        team.pods.delete(pod.metadata.name.as_deref().unwrap(), &now).await.unwrap();
    }
}

pub async fn released(pods: &Api<Pod>) -> usize {
    let pods = pods.list(&kube::api::ListParams::default()).await.unwrap();
    pods.items.iter().filter(|pod| !is_held(pod)).count()
}

/// Ends a controller the hard way and waits until it is gone.
pub async fn kill(controller: Controller) {
    controller.program.kill();
    controller.program.wait().await;
}

/// Ends a controller as a rollout does; it gives its lease back.
pub async fn stop(controller: Controller) {
    controller.program.terminate();
    let exit = tokio::time::timeout(Duration::from_secs(15), controller.program.wait()).await;
    assert_eq!(exit.expect("a controller that is asked to stop stops").code, 0);
}
