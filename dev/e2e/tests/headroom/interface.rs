//! A network interface that is plugged into a running machine: its launcher then asks for a device and for a gibibyte more
//! (KubeVirt's `WithNetworkResources` and `GetMemoryOverhead`). That is the tenant's doing and has to fit the quota.
//!
//! KubeVirt's part is the real one: virt-controller takes the interface from the VirtualMachine to its instance, asks for
//! the migration and renders the target. Multus and virt-handler are played, which tell it what a launcher is attached to
//! and what a guest has.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_e2e::tenant::{Tenant, amount, shared, spec_hard, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript, Vm};

use crate::account::growth_is_refused;
use crate::context::{MEMORY, MI, set_limit, used_memory};

const DEVICE: &str = "example.com/vf";
/// What the machine's instance has of interfaces: as it is to be, and as it is.
const WANTED: &str = "/spec/domain/devices/interfaces";
const THERE: &str = "/status/interfaces";
/// What its VirtualMachine has of them.
const TEMPLATE: &str = "/spec/template/spec/domain/devices/interfaces";
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

/// Changes the VirtualMachine so that it has the interface, in this state.
async fn change(vm: &Vm, state: Option<&str>) {
    let mut interface = json!({ "name": "vf", "sriov": {} });
    if let Some(state) = state {
        interface["state"] = json!(state);
    }
    let change = json!({
        "networks": [{ "name": "vf", "multus": { "networkName": "vf" } }],
        "domain": { "devices": { "interfaces": [interface] } },
    });
    vm.change(change).await.unwrap();
}

/// Plugs the interface in; KubeVirt migrates the machine for it.
async fn plug(vm: &Vm) -> Migration {
    let known = vm.migrations().await.unwrap();
    change(vm, None).await;
    vm.until_migration(&known).await.unwrap()
}

/// The interface in a list of the instance, beside that of all pods.
fn interface<'v>(vmi: &'v DynamicObject, list: &str) -> Option<&'v Value> {
    let all = vmi.data.pointer(list).and_then(Value::as_array);
    all.into_iter().flatten().find(|interface| interface["name"] == "vf")
}

/// Plays virt-handler: neither the guest nor its launcher has the interface any more.
async fn detach(tenant: &Tenant<'_>, vm: &Vm) {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
    let kind = ApiResource::from_gvk_with_plural(&kind, "virtualmachineinstances");
    let machines: Api<DynamicObject> = Api::namespaced_with(tenant.client.clone(), tenant.name(), &kind);
    let rest = Patch::Merge(json!({ "status": { "interfaces": [{ "name": "default" }] } }));
    machines.patch(vm.name(), &PatchParams::default(), &rest).await.unwrap();
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

/// It fitted before, as a larger launcher that has ended: that is no size to return to beside a full quota.
#[tokio::test(flavor = "multi_thread")]
async fn an_interface_that_was_unplugged_is_no_size_to_return_to() {
    let (tenant, vm) = unplugged("renic").await;
    let migration = plug(&vm).await;
    let large = arrive(&tenant, &vm, &migration).await;
    assert_eq!(requests(&large, DEVICE), "1");
    vm.until("to have the interface", |vmi| interface(vmi, THERE).is_some()).await.unwrap();
    change(&vm, Some("absent")).await;
    let leaves = |vmi: &DynamicObject| interface(vmi, WANTED).is_some_and(|it| it["state"] == "absent");
    vm.until("to be rid of the interface", leaves).await.unwrap();
    // This target is not attached to it, but asks for the device still: KubeVirt takes it from the machine afterwards.
    let migration = vm.migrate().await.unwrap();
    arrive(&tenant, &vm, &migration).await;
    detach(&tenant, &vm).await;
    vm.until("to have no interface", |vmi| interface(vmi, WANTED).is_none()).await.unwrap();
    let migration = vm.migrate().await.unwrap();
    let small = arrive(&tenant, &vm, &migration).await;
    assert_eq!(requests(&small, DEVICE), "");
    // What virt-controller wrote meanwhile may have had it still.
    detach(&tenant, &vm).await;
    vm.until("to have none", |vmi| [WANTED, THERE].iter().all(|list| interface(vmi, list).is_none()))
        .await
        .unwrap();
    vm.until_machine("to have no interface", |vm| interface(vm, TEMPLATE).is_none()).await.unwrap();
    tenant.full_quota("rq", &[MEMORY]).await;
    let before = used_memory(&tenant).await;
    let migration = plug(&vm).await;
    migration.until_rejected().await.unwrap();
    tenant.unlimited().await;
    growth_is_refused(&tenant, &migration).await;
    assert_eq!(used_memory(&tenant).await, before);
    until_full(&tenant).await;
}
