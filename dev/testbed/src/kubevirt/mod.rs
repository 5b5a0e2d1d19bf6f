//! VMs and migrations of a bed that runs KubeVirt, in a few verbs.
//!
//! virt-controller is the real one; nodes and pods are KWOK's; what the node agents would write
//! comes from the [`SimulatedVirtHandler`](crate::SimulatedVirtHandler). There is no virt-api, so
//! nothing validates or defaults what is created here, except what these verbs set themselves.

mod builder;
pub(crate) mod kinds;
mod migration;
mod vm;

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

pub use crate::virt_handler::MigrationScript;
pub use builder::VmBuilder;
pub use migration::{Migration, MigrationPhase};
pub use vm::Vm;

use crate::{Bed, Component, artifacts, wait};

/// Deadline of every wait here; generous, for a machine that is busy with something else.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// KubeVirt's own namespace.
pub const NAMESPACE: &str = "kubevirt";
/// The account that creates launcher pods.
pub const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";
/// Name of the installation object.
pub(crate) const INSTALLATION: &str = "kubevirt";

/// KubeVirt in a bed. Belongs to the tokio runtime in which it was asked for.
pub struct KubeVirt<'a> {
    bed: &'a Bed,
    client: Client,
}

impl<'a> KubeVirt<'a> {
    pub(crate) const fn new(bed: &'a Bed, client: Client) -> Self {
        Self { bed, client }
    }

    /// Adds nodes that run VMs (32 CPUs, 128 GiB each, and network devices `example.com/vf`); returns their names.
    ///
    /// # Errors
    /// As [`Bed::add_nodes`].
    pub async fn add_nodes(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let capacity = [
            ("cpu", "32"),
            ("memory", "128Gi"),
            ("ephemeral-storage", "1Ti"),
            ("devices.kubevirt.io/kvm", "1000"),
            ("devices.kubevirt.io/tun", "1000"),
            ("devices.kubevirt.io/vhost-net", "1000"),
            ("example.com/vf", "1000"),
        ];
        let labels = [("kubevirt.io/schedulable", "true"), ("machine-type.node.kubevirt.io/q35", "true")];
        self.bed.add_labelled_nodes(count, &capacity, &labels).await
    }

    /// Merges into the installation's `spec.configuration`, e.g.
    /// `{"migrations": {"parallelMigrationsPerCluster": 20}}`; returns when virt-controller uses it.
    ///
    /// # Errors
    /// When the API server refuses, or virt-controller does not take it over.
    pub async fn configure(&self, configuration: Value) -> anyhow::Result<()> {
        // virt-controller logs its rate limit whenever it has read the configuration: a burst
        // that was not set before shows that it was this one.
        let burst = 1000 + crate::ports::random() % 1_000_000;
        let mark = json!({"controllerConfiguration": {"restClient": {"rateLimiter": {
            "tokenBucketRateLimiter": {"qps": 1000, "burst": burst},
        }}}});
        let installations = kinds::namespaced(&self.client, &kinds::installation(), NAMESPACE);
        for part in [configuration, mark] {
            let patch = Patch::Merge(json!({"spec": {"configuration": part}}));
            let patched = installations.patch(INSTALLATION, &PatchParams::default(), &patch).await;
            patched.context("configuring KubeVirt")?;
        }
        let told = format!(" and {burst} Burst");
        let log = self.bed.log_of(Component::VirtController);
        let probe =
            || async { std::fs::read_to_string(&log).ok().filter(|text| text.contains(&told)).map(drop) };
        wait::eventually(DEADLINE, probe, "virt-controller to use its new configuration").await
    }

    /// So many migrations at a time: in the cluster, and away from each node. KubeVirt's defaults are 5 and 2
    /// (`pkg/virt-config/virt-config.go`).
    ///
    /// # Errors
    /// As [`Self::configure`].
    pub async fn migrate_at_a_time(&self, cluster: u32, outbound: u32) -> anyhow::Result<()> {
        let limits =
            json!({"parallelMigrationsPerCluster": cluster, "parallelOutboundMigrationsPerNode": outbound});
        self.configure(json!({ "migrations": limits })).await
    }

    /// A VM to be started: a VirtualMachineInstance with one vCPU and 256 MiB unless told otherwise.
    pub fn vm(&self, namespace: &str, name: &str) -> VmBuilder {
        VmBuilder::new(self.client.clone(), namespace, name)
    }

    /// A VM that exists or will.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Vm {
        Vm::new(self.client.clone(), namespace, name)
    }

    /// Creates a VirtualMachineInstance or VirtualMachine as it stands; does not wait.
    ///
    /// # Errors
    /// When it has no namespace, is of another kind or the API server refuses it.
    pub async fn create(&self, object: Value) -> anyhow::Result<Vm> {
        create(&self.client, object).await
    }

    /// Cordons the node and asks virt-controller to evacuate all its VMs, as `kubectl drain` does
    /// through KubeVirt's eviction webhook; returns the VMs, does not wait for them.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn drain(&self, node: &str) -> anyhow::Result<Vec<Vm>> {
        self.schedulable(node, false).await?;
        let all = kinds::all(&self.client, &kinds::vmi()).list(&ListParams::default()).await?;
        let there = all.items.iter().filter(|vmi| {
            vmi.data.pointer("/status/nodeName").and_then(Value::as_str) == Some(node)
                && vmi.metadata.deletion_timestamp.is_none()
        });
        let mut vms = Vec::new();
        for vmi in there {
            let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
            let name = vmi.metadata.name.as_deref().unwrap_or_default();
            let patch = Patch::Merge(json!({"status": {"evacuationNodeName": node}}));
            let vmis = kinds::namespaced(&self.client, &kinds::vmi(), namespace);
            let patched = vmis.patch(name, &PatchParams::default(), &patch).await;
            patched.with_context(|| format!("asking for the evacuation of VM {namespace}/{name}"))?;
            vms.push(self.get(namespace, name));
        }
        Ok(vms)
    }

    /// Makes a drained node usable again.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn uncordon(&self, node: &str) -> anyhow::Result<()> {
        self.schedulable(node, true).await
    }

    async fn schedulable(&self, node: &str, schedulable: bool) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"unschedulable": !schedulable}}));
        let patched = nodes.patch(node, &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("cordoning or uncordoning node {node}"))
    }
}

/// The first version whose virt-controller lets a launcher ask for the guest's memory. Before, virt-api wrote that
/// request into the VMI (`setDefaultResourceRequests`).
const ASKS_FOR_GUEST_MEMORY: u32 = 7;

/// Adds to a VMI's spec, or to a change of one, the request that virt-api or the controller
/// of VirtualMachines adds in old versions.
fn ask_for_guest_memory(spec: &mut Value) -> anyhow::Result<()> {
    let amount = |place: &str| spec.pointer(place).filter(|amount| !amount.is_null()).cloned();
    let limit = amount("/domain/resources/limits/memory");
    let is_said = amount("/domain/resources/requests/memory").is_some();
    let Some(memory) = limit.or_else(|| amount("/domain/memory/guest")).filter(|_| !is_said) else {
        return Ok(());
    };
    if artifacts::kubevirt_minor()? < ASKS_FOR_GUEST_MEMORY {
        builder::merge(spec, json!({"domain": {"resources": {"requests": {"memory": memory}}}}));
    }
    Ok(())
}

async fn create(client: &Client, mut object: Value) -> anyhow::Result<Vm> {
    for place in ["/spec/template/spec", "/spec"] {
        if let Some(spec) = object.pointer_mut(place).filter(|spec| spec.get("domain").is_some()) {
            ask_for_guest_memory(spec)?;
        }
    }
    let object: DynamicObject = serde_json::from_value(object).context("reading a VM's manifest")?;
    let resource = match object.types.as_ref().map(|types| types.kind.as_str()) {
        Some("VirtualMachineInstance") => kinds::vmi(),
        Some("VirtualMachine") => kinds::virtual_machine(),
        other => bail!("a VM is a VirtualMachineInstance or a VirtualMachine, not {other:?}"),
    };
    let namespace = object.metadata.namespace.clone().context("a VM without a namespace")?;
    let name = object.metadata.name.clone().context("a VM without a name")?;
    let objects = kinds::namespaced(client, &resource, &namespace);
    let created = objects.create(&PostParams::default(), &object).await;
    created.with_context(|| format!("creating {} {namespace}/{name}", resource.kind))?;
    Ok(Vm::new(client.clone(), &namespace, &name))
}
