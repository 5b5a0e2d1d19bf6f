//! A network interface that is plugged into a running machine: its launcher then asks for a device and for a gibibyte more
//! (KubeVirt's `WithNetworkResources` and `GetMemoryOverhead`). That is the tenant's doing and has to fit the quota.
//!
//! KubeVirt's part is the real one: virt-controller takes the interface from the VirtualMachine to its instance, asks for
//! the migration and renders the target. Multus is played, which tells it what a launcher is attached to.

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_e2e::call::{MERGE, call};
use sluice_e2e::objects;
use sluice_e2e::tenant::{Tenant, amount, shared, spec_hard, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript, Vm};

use crate::account::{growth_in_is_refused, growth_is_refused};
use crate::context::{MEMORY, MI, set_limit, used_memory};

const DEVICE: &str = "example.com/vf";
const DEVICES: &str = "requests.example.com/vf";
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

/// Gives the machine this interface.
async fn give(vm: &Vm, interface: Value) {
    let change = json!({
        "networks": [{ "name": "vf", "multus": { "networkName": "vf" } }],
        "domain": { "devices": { "interfaces": [interface] } },
    });
    vm.change(change).await.unwrap();
}

/// The same; KubeVirt migrates the machine for it.
async fn given(vm: &Vm, interface: Value) -> Migration {
    let known = vm.migrations().await.unwrap();
    give(vm, interface).await;
    vm.until_migration(&known).await.unwrap()
}

fn device() -> Value {
    json!({ "name": "vf", "sriov": {} })
}

/// KubeVirt unplugs bridges alone (`pkg/network/admitter/admit.go`), and migrates a machine for one after 15 seconds.
fn bridge() -> Value {
    json!({ "name": "vf", "bridge": {} })
}

fn unplugged_bridge() -> Value {
    json!({ "name": "vf", "bridge": {}, "state": "absent" })
}

/// Plays virt-handler: the guest has no interface any more. KubeVirt takes it from the machine then.
async fn detach(tenant: &Tenant<'_>, vm: &Vm) {
    let path =
        format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstances/{}", tenant.name(), vm.name());
    let detached = json!({ "status": { "interfaces": null } });
    let answer = call(&tenant.client, Method::PATCH, &path, MERGE, &detached).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    let lacks = |pointer: &'static str| {
        move |object: &DynamicObject| {
            let all = object.data.pointer(pointer).and_then(Value::as_array);
            all.into_iter().flatten().all(|interface| interface["name"] != "vf")
        }
    };
    vm.until("to lack the interface", lacks("/spec/domain/devices/interfaces")).await.unwrap();
    let of_template = "/spec/template/spec/domain/devices/interfaces";
    vm.until_machine("to lack the interface", lacks(of_template)).await.unwrap();
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
    let migration = given(&vm, device()).await;
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

/// Where room is granted, the update is refused already, in the words of quota admission. KubeVirt says so on the
/// VirtualMachine, and tries again.
#[tokio::test(flavor = "multi_thread")]
async fn an_interface_that_no_target_would_find_room_for_is_refused_when_it_is_plugged_in() {
    let (tenant, vm) = unplugged("nonic").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    let before = used_memory(&tenant).await;
    // The webhook knows of the grant from here on.
    let migration = vm.migrate().await.unwrap();
    arrive(&tenant, &vm, &migration).await;
    tenant.until_clear().await;
    give(&vm, device()).await;
    let is_said = |machine: &DynamicObject| {
        machine.data.to_string().contains("exceeded quota: rq, requested: requests.memory=1073741824")
    };
    vm.until_machine("to say why", is_said).await.unwrap();
    assert_eq!((tenant.rejected_attempts().await, used_memory(&tenant).await), (0, before));
    let known = vm.migrations().await.unwrap();
    set_limit(&tenant, &(before + 1024 * MI).to_string()).await;
    let migration = vm.until_migration(&known).await.unwrap();
    let launcher = arrive(&tenant, &vm, &migration).await;
    assert_eq!(requests(&launcher, DEVICE), "1");
    until_full(&tenant).await;
}

/// Plugged in while there was room, unplugged, and plugged in again when another pod has the device: what a former launcher
/// had is nothing to return to. The launcher that KubeVirt makes for the unplugging has the device still.
#[tokio::test(flavor = "multi_thread")]
async fn an_interface_that_was_unplugged_has_to_fit_again() {
    let (tenant, vm) = unplugged("renic").await;
    tenant.quota("rq", json!({ DEVICES: "2" })).await;
    for interface in [bridge(), unplugged_bridge()] {
        let launcher = arrive(&tenant, &vm, &given(&vm, interface).await).await;
        assert_eq!(requests(&launcher, DEVICE), "1");
    }
    detach(&tenant, &vm).await;
    let launcher = arrive(&tenant, &vm, &vm.migrate().await.unwrap()).await;
    assert_eq!(requests(&launcher, DEVICE), "");
    let path = format!("/api/v1/namespaces/{}/resourcequotas/rq", tenant.name());
    let one = json!({ "spec": { "hard": { DEVICES: "1" } } });
    assert!(call(&tenant.client, Method::PATCH, &path, MERGE, &one).await.unwrap().is_ok());
    let mut other = objects::pod("other", &[]);
    let one = json!({ "requests": { DEVICE: "1" }, "limits": { DEVICE: "1" } });
    let container = &mut other.spec.as_mut().unwrap().containers[0];
    container.resources = Some(serde_json::from_value(one).unwrap());
    tenant.pods.create(&PostParams::default(), &other).await.unwrap();
    let migration = given(&vm, bridge()).await;
    migration.until_rejected().await.unwrap();
    tenant.unlimited().await;
    growth_in_is_refused(&tenant, &migration, DEVICES).await;
    let full = |quota: &_| amount(&used(quota), DEVICES) == amount(&spec_hard(quota), DEVICES);
    tenant.until_quota("rq", "to have one device, and no more", full).await;
}
