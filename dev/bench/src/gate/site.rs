//! The control plane, and pods that wait on it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota, names};
use sluice_e2e::{Controller, Installation, Setup, objects};
use sluice_runtime::client::{ClientOptions, connect};
use sluice_testbed::{Bed, BedOptions, wait};

/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pods created at a time.
const CREATIONS: usize = 16;
/// Label of every pod of the bench.
pub const LABEL: &str = "sluice-bench";

/// How many pods in how many namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub namespaces: usize,
    pub each: usize,
}

impl Shape {
    pub const fn pods(self) -> usize {
        self.namespaces * self.each
    }
}

/// A control plane with Sluice's objects; nothing of Sluice runs.
pub struct Site {
    bed: &'static Bed,
    installation: Installation<'static>,
    /// The bench as administrator.
    pub admin: Client,
    /// The bench with the controller's own account and client: what is compared with the controller must be
    /// treated by the API server as the controller is.
    pub as_controller: Client,
    /// Further arguments of the controllers that are started from now on.
    pub controller_args: Vec<String>,
    kubeconfig: std::path::PathBuf,
}

/// Namespaces of one shape.
pub struct Plot {
    pub shape: Shape,
    pub namespaces: Vec<String>,
    /// Whether one quota is about all of them, in place of one for each.
    is_cluster: bool,
}

/// Label of the namespaces that one quota is about: how many they are.
const CLUSTER: &str = "sluice-bench-cluster";

impl Plot {
    /// Where the pod of this number goes: namespaces in turn.
    pub fn namespace(&self, number: usize) -> anyhow::Result<&str> {
        let at = number % self.namespaces.len().max(1);
        self.namespaces.get(at).map(String::as_str).context("a plot without namespaces")
    }
}

impl Site {
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Setup { without_webhook: true, ..Setup::default() }).await
    }

    /// As [`Self::start`], of such an installation.
    pub async fn start_with(setup: Setup) -> anyhow::Result<Self> {
        // No scheduler and no nodes: a released pod causes no further work that would be measured too.
        let options = BedOptions { kwok: false, scheduler: false, audit: false, ..BedOptions::default() };
        let bed = Bed::start_shared(options).await?;
        let installation = Installation::apply(bed, setup).await?;
        let admin = client(bed.admin_kubeconfig()).await?;
        let account = bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await?;
        let as_controller = client(account.kubeconfig()).await?;
        let (kubeconfig, controller_args) = (account.kubeconfig().to_owned(), Vec::new());
        Ok(Self { bed, installation, admin, as_controller, controller_args, kubeconfig })
    }

    /// The control plane, and Sluice's objects on it.
    pub const fn parts(&self) -> (&'static Bed, &Installation<'static>) {
        (self.bed, &self.installation)
    }

    pub async fn server_constants(&self) -> anyhow::Result<Value> {
        let version = self.admin.apiserver_version().await.context("asking for the server's version")?;
        Ok(json!({
            "kubernetes": version.git_version, "go": version.go_version, "etcd": etcd_version(),
            "etcd_fsync": false, "nodes": 0, "scheduler": false, "audit_log": false, "webhook": false,
        }))
    }

    /// Fresh namespaces for pods of a shape, with a quota each.
    pub async fn plot(&self, shape: Shape) -> anyhow::Result<Plot> {
        self.plot_with(shape, objects::TARGETED).await
    }

    /// From now on cluster quotas have an effect.
    pub async fn allow_cluster_quotas(&self) -> anyhow::Result<()> {
        let spec = json!({ "configuration": { "allowApplicationAwareClusterResourceQuota": true } });
        objects::apply_aaq(&self.admin, spec).await?;
        Ok(())
    }

    /// Fresh namespaces for pods of a shape, with one quota for all of them and none of another shape.
    pub async fn cluster_plot(&self, shape: Shape) -> anyhow::Result<Plot> {
        let many = shape.namespaces.to_string();
        let labels: Vec<_> = objects::TARGETED.iter().copied().chain([(CLUSTER, many.as_str())]).collect();
        Ok(Plot { is_cluster: true, ..self.plot_with(shape, &labels).await? })
    }

    async fn plot_with(&self, shape: Shape, labels: &[(&str, &str)]) -> anyhow::Result<Plot> {
        let fresh = futures::stream::iter(0..shape.namespaces).map(|_| self.bed.namespace("bench", labels));
        let namespaces: Vec<_> = fresh.buffered(CREATIONS).try_collect().await?;
        let namespaces = namespaces.into_iter().map(|namespace| namespace.name).collect();
        Ok(Plot { shape, namespaces, is_cluster: false })
    }

    /// Quotas with room for all.
    pub async fn create_quotas(&self, plot: &Plot) -> anyhow::Result<()> {
        let roomy = objects::quota(
            "bench",
            &[("pods", "100k"), ("requests.cpu", "100k"), ("requests.memory", "1Pi")],
        );
        if plot.is_cluster {
            let many = plot.shape.namespaces.to_string();
            let quota: ApplicationAwareClusterResourceQuota = objects::from_json(json!({
                "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
                "metadata": { "name": "bench" },
                "spec": { "quota": roomy.spec, "selector": { "labels": { "matchLabels": { CLUSTER: many } } } },
            }));
            Api::all(self.admin.clone()).create(&PostParams::default(), &quota).await?;
            return Ok(());
        }
        let creations =
            plot.namespaces.iter().map(|namespace| objects::create(&self.admin, namespace, &roomy));
        futures::stream::iter(creations).buffer_unordered(CREATIONS).try_collect::<Vec<_>>().await?;
        Ok(())
    }

    /// Creates as many gated pods as the shape says; returns them as the server answered.
    pub async fn create_pods(&self, plot: &Plot) -> anyhow::Result<Vec<Pod>> {
        let creations = (0..plot.shape.pods()).map(|number| async move {
            let pod = gated_pod(&format!("pod-{number:04}"));
            anyhow::Ok(objects::create(&self.admin, plot.namespace(number)?, &pod).await?)
        });
        let created = futures::stream::iter(creations).buffer_unordered(CREATIONS).try_collect().await;
        created.context("creating pods")
    }

    /// Removes all pods and quotas of the plot; returns when they are gone.
    pub async fn clear(&self, plot: &Plot) -> anyhow::Result<()> {
        let clear = |namespace: &String| {
            let (client, namespace) = (self.admin.clone(), namespace.clone());
            async move {
                let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                let quotas: Api<ApplicationAwareResourceQuota> = Api::namespaced(client, &namespace);
                let now = DeleteParams::default().grace_period(0);
                pods.delete_collection(&now, &ListParams::default()).await?;
                quotas.delete_collection(&now, &ListParams::default()).await?;
                let one = ListParams::default().limit(1);
                let gone = || async {
                    let pods = pods.list_metadata(&one).await.ok()?;
                    pods.items.is_empty().then_some(())
                };
                wait::eventually(PATIENCE, gone, "the pods to be gone").await
            }
        };
        let all = futures::stream::iter(plot.namespaces.iter().map(clear)).buffer_unordered(CREATIONS);
        all.try_collect::<Vec<()>>().await.context("removing pods")?;
        if plot.is_cluster {
            let quotas = Api::<ApplicationAwareClusterResourceQuota>::all(self.admin.clone());
            quotas.delete("bench", &DeleteParams::default()).await.context("removing the cluster quota")?;
        }
        Ok(())
    }

    /// Starts a controller; it may not lead yet when this returns.
    pub async fn controller(&self) -> anyhow::Result<Controller> {
        let args: Vec<&str> = self.controller_args.iter().map(String::as_str).collect();
        self.installation.controller_with(&self.kubeconfig, &args).await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The bed itself is leaked so that the installation may refer to it; its keepers end it with this process.
        for component in self.bed.processes().into_keys() {
            self.bed.stop(component);
        }
    }
}

/// Stops a controller in an orderly way, so that the next one finds a free lease.
pub fn stop(controller: &Controller) {
    tokio::task::block_in_place(|| controller.program.stop());
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let options = ClientOptions { kubeconfig: Some(kubeconfig.to_owned()), ..ClientOptions::default() };
    Ok(connect(&options).await?)
}

/// A pod behind our gate.
pub fn gated_pod(name: &str) -> Pod {
    let mut pod = objects::pod(name, &[("cpu", "100m"), ("memory", "64Mi")]);
    pod.metadata.labels = Some([(LABEL.to_owned(), "true".to_owned())].into());
    if let Some(spec) = pod.spec.as_mut() {
        spec.automount_service_account_token = Some(false);
        let gate = k8s_openapi::api::core::v1::PodSchedulingGate { name: names::GATE.to_owned() };
        spec.scheduling_gates = Some(vec![gate]);
    }
    pod
}

/// The version of etcd that the test bed is built with.
fn etcd_version() -> Option<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/kubernetes/go.mod");
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.contains("go.etcd.io/etcd/server/v3"))?;
    line.split_whitespace().find(|word| word.starts_with("v3.")).map(str::to_owned)
}
