//! Harvester's and Rancher's world: quotas that Rancher projects from a namespace's annotation, and the field reports of
//! what became of them. Whatever happens, no quota ever enforces less than its base.

mod field;
mod forbidden;
mod overhead;
mod rancher;
mod shapes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_e2e::tenant::{Tenant, hard, used};
use sluice_testbed::kubevirt::{Vm, VmBuilder};

/// Label of the quotas that Rancher owns.
const MARKER: &str = "resourcequota.management.cattle.io/default-resource-quota";
/// Annotation of a namespace that says what Rancher wants.
const WANTED: &str = "field.cattle.io/resourceQuota";

/// Amounts by key.
type Hard = BTreeMap<String, String>;

fn amounts(pairs: &[(&str, &str)]) -> Hard {
    pairs.iter().map(|&(key, amount)| (key.to_owned(), amount.to_owned())).collect()
}

/// A quota as Rancher makes it; returns when its status is there.
async fn projected(tenant: &Tenant<'_>, name: &str, spec: &Hard) -> ResourceQuota {
    let quota = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { MARKER: "true", "cattle.io/creator": "norman" } },
        "spec": { "hard": spec },
    }))
    .unwrap();
    tenant.quotas.create(&PostParams::default(), &quota).await.unwrap();
    let there = |quota: &ResourceQuota| !used(quota).is_empty() && !hard(quota).is_empty();
    tenant.until_quota(name, "its first status", there).await
}

async fn annotate(tenant: &Tenant<'_>, name: &str, value: Option<&str>) {
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { name: value } } }));
    namespaces.patch(tenant.name(), &PatchParams::default(), &patch).await.unwrap();
}

/// What Harvester makes of a virtual machine with these limits: a tenth or less of the CPU and two thirds of the memory
/// are requested.
fn machine(tenant: &Tenant<'_>, name: &str, limits: (u32, &str), requests: (&str, &str)) -> VmBuilder {
    let (cores, memory) = limits;
    tenant
        .kubevirt
        .vm(tenant.name(), name)
        .sockets(cores)
        .memory(memory)
        .limits(&[("cpu", &cores.to_string()), ("memory", memory)])
        .requests(&[("cpu", requests.0), ("memory", requests.1)])
}

/// KubeVirt 0.54 had no container for the serial console, which the numbers of that time rest on.
fn without_console(machine: VmBuilder) -> VmBuilder {
    machine.spec(json!({ "domain": { "devices": { "logSerialConsole": false } } }))
}

/// Waits until the quota counts exactly this.
async fn until_used(tenant: &Tenant<'_>, quota: &str, amounts: &[(&str, &str)]) -> ResourceQuota {
    let counted = |quota: &ResourceQuota| {
        amounts.iter().all(|(key, wanted)| used(quota).get(*key).is_some_and(|amount| amount.0 == *wanted))
    };
    tenant.until_quota(quota, &format!("{amounts:?} to be used"), counted).await
}

/// Has machines leave their nodes, as the drain of a node does.
async fn evacuate(tenant: &Tenant<'_>, vms: &[Vm]) {
    let resource = kube::api::ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"),
        "virtualmachineinstances",
    );
    let api: Api<DynamicObject> = Api::namespaced_with(tenant.client.clone(), tenant.name(), &resource);
    for vm in vms {
        let from = vm.node().await.unwrap();
        let patch: Value = json!({ "status": { "evacuationNodeName": from } });
        api.patch(vm.name(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// Something else that a quota counts: a pod with these limits, like the one that attaches a volume.
async fn other_pod(tenant: &Tenant<'_>, name: &str, cpu: &str, memory: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "none", "resources": {
                "requests": { "cpu": "10m", "memory": "2M" }, "limits": { "cpu": cpu, "memory": memory },
            }}],
        },
    }))
    .unwrap();
    tenant.pods.create(&PostParams::default(), &pod).await.unwrap();
}
