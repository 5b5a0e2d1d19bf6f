//! A network interface that is plugged into a running machine: its launcher then asks for a device and for a gibibyte more
//! (KubeVirt's `WithNetworkResources` and `GetMemoryOverhead`). That is the tenant's doing and has to fit the quota.
//!
//! KubeVirt's part is the real one: virt-controller takes the interface from the VirtualMachine to its instance, asks for
//! the migration and renders the target. Multus is played, which tells it what a launcher is attached to.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_e2e::tenant::{Tenant, amount, shared, spec_hard, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript, Vm};

use crate::account::growth_is_refused;
use crate::context::{MEMORY, MI, set_limit, used_memory};

const DEVICE: &str = "example.com/vf";
/// Where KubeVirt says what a pod is to be attached to, and Multus what it is.
const ASKED: &str = "k8s.v1.cni.cncf.io/networks";
const ATTACHED: &str = "k8s.v1.cni.cncf.io/network-status";

/// What Multus defines, as far as virt-controller reads it.
fn kind() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "network-attachment-definitions.k8s.cni.cncf.io" },
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": {
                "kind": "NetworkAttachmentDefinition", "listKind": "NetworkAttachmentDefinitionList",
                "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
            },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    })
}

/// A namespace with a network `vf`, whose interfaces are devices of nodes, and a machine in it without interfaces.
async fn unplugged(prefix: &str) -> (Tenant<'static>, Vm) {
    let tenant = Tenant::on(shared().await.bed, prefix).await;
    let network = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": "vf", "namespace": tenant.name(),
            "annotations": { "k8s.v1.cni.cncf.io/resourceName": DEVICE },
        },
        "spec": { "config": "{}" },
    });
    tenant.bed.apply_objects([kind(), network]).await.unwrap();
    let vm = tenant.kubevirt.vm(tenant.name(), "web").script(MigrationScript::Hold).virtual_machine();
    (tenant, vm.start().await.unwrap())
}

/// Plugs the interface in; KubeVirt migrates the machine for it.
async fn plug(vm: &Vm) -> Migration {
    let known = vm.migrations().await.unwrap();
    let change = json!({
        "networks": [{ "name": "vf", "multus": { "networkName": "vf" } }],
        "domain": { "devices": { "interfaces": [{ "name": "vf", "sriov": {} }] } },
    });
    vm.change(change).await.unwrap();
    vm.until_migration(&known).await.unwrap()
}

/// What the guest's container of a launcher asks for.
fn requests(pod: &Pod, resource: &str) -> String {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let compute = containers.iter().find(|container| container.name == "compute").unwrap();
    let requests = compute.resources.as_ref().and_then(|it| it.requests.clone()).unwrap();
    requests.get(resource).map(|amount| amount.0.clone()).unwrap_or_default()
}

/// Plays Multus: the launcher is attached to the networks that KubeVirt asks for, by interfaces of the names that it gives.
async fn attach(tenant: &Tenant<'_>, launcher: &Pod) {
    let asked = launcher.annotations().get(ASKED).map_or("[]", String::as_str);
    let asked: Vec<Value> = serde_json::from_str(asked).unwrap();
    let of = |network: &Value| {
        let name = network["name"].as_str().unwrap();
        json!({ "name": format!("{}/{name}", tenant.name()), "interface": network["interface"] })
    };
    let status = json!(asked.iter().map(of).collect::<Vec<_>>()).to_string();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { ATTACHED: status } } }));
    tenant.pods.patch(&launcher.name_any(), &PatchParams::default(), &patch).await.unwrap();
}

/// Lets a migration end. Returns what the machine runs in then.
async fn arrive(tenant: &Tenant<'_>, vm: &Vm, migration: &Migration) -> Pod {
    let target = migration.until_target_pod().await.unwrap();
    attach(tenant, &target).await;
    migration.until(MigrationPhase::Running).await.unwrap();
    vm.release().await.unwrap();
    migration.until_succeeded().await.unwrap();
    let launcher = vm.until_alone().await.unwrap();
    vm.follow(MigrationScript::Hold).await.unwrap();
    launcher
}

/// Nothing is above the quota any more, and not a byte is left in it.
async fn until_full(tenant: &Tenant<'_>) {
    let full = |quota: &_| amount(&used(quota), MEMORY) == amount(&spec_hard(quota), MEMORY);
    tenant.until_quota("rq", "to be full and not exceeded", full).await;
}

/// An exactly full quota stays so, whatever is plugged in; what fits passes, and nothing is above it afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn an_interface_that_is_plugged_in_has_to_fit() {
    let (tenant, vm) = unplugged("nic").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    let before = used_memory(&tenant).await;
    let migration = plug(&vm).await;
    migration.until_rejected().await.unwrap();
    tenant.unlimited().await;
    growth_is_refused(&tenant, &migration).await;
    assert_eq!(used_memory(&tenant).await, before);
    set_limit(&tenant, &(before + 1024 * MI).to_string()).await;
    let launcher = arrive(&tenant, &vm, &migration).await;
    assert_eq!(requests(&launcher, DEVICE), "1");
    tenant.until_clear().await;
    until_full(&tenant).await;
}
