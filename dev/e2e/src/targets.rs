//! Targets of migrations as KubeVirt's controller makes them, here and as another cluster's migration asks for them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_testbed::kubevirt::{CONTROLLER, Vm};
use sluice_testbed::wait;

use crate::call::{Response, post};
use crate::tenant::{SOON, Tenant};

/// The pod as its creator asks for it, under another name: without what admission, the scheduler and its node have added.
#[must_use]
pub fn anew(pod: &Pod, name: &str) -> Value {
    let mut new = serde_json::to_value(pod).unwrap();
    let mut metadata = json!({ "name": name });
    for kept in ["labels", "annotations", "ownerReferences"] {
        metadata[kept] = new["metadata"][kept].take();
    }
    metadata["annotations"].as_object_mut().unwrap().remove(names::CREATED_BY_ANNOTATION);
    new["metadata"] = metadata;
    for added in ["schedulingGates", "nodeName", "priority"] {
        new["spec"].as_object_mut().unwrap().remove(added);
    }
    new.as_object_mut().unwrap().remove("status");
    new["apiVersion"] = json!("v1");
    new["kind"] = json!("Pod");
    new
}

/// A required anti-affinity to the pods of the machine with this uid, as KubeVirt gives it to targets of local migrations.
#[must_use]
pub fn beside(machine: &str) -> Value {
    let labels = json!({ "matchLabels": { names::CREATED_BY_LABEL: machine } });
    let term = json!({ "labelSelector": labels, "topologyKey": names::HOSTNAME_LABEL });
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } })
}

/// Migrates the VM; returns its target as KubeVirt's controller would ask for it anew.
pub async fn migrate(vm: &Vm) -> Value {
    let migration = vm.migrate().await.unwrap();
    let target = anew(&migration.until_target_pod().await.unwrap(), "anew");
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    target
}

/// What would become of a new pod that KubeVirt's controller creates.
pub async fn try_by_kubevirt(tenant: &Tenant<'_>, pod: &Value) -> Response {
    let kubevirt = tenant.bed.client_as_user(CONTROLLER, &["system:masters"]).unwrap();
    let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", tenant.name());
    post(&kubevirt.client().unwrap(), &path, pod).await.unwrap()
}

/// Whether the pod in the answer has the gate of Sluice.
#[must_use]
pub fn is_gated(pod: &Value) -> bool {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    gates.into_iter().flatten().any(|gate| gate["name"] == names::GATE)
}

/// Waits until such a pod of KubeVirt's controller is gated, or is not: within a second or two of what decides that.
pub async fn until_gated(tenant: &Tenant<'_>, pod: &Value, wanted: bool) {
    let is = || async {
        let answer = try_by_kubevirt(tenant, pod).await;
        (answer.is_ok() && is_gated(&answer.body) == wanted).then_some(())
    };
    wait::eventually(SOON, is, &format!("targets to be gated: {wanted}")).await.unwrap();
}

fn api(tenant: &Tenant<'_>, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kubevirt.io", "v1", kind), plural);
    Api::namespaced_with(tenant.client.clone(), tenant.name(), &kind)
}

async fn until(api: &Api<DynamicObject>, name: &str, pointer: &str, wanted: impl Fn(&Value) -> bool) {
    let is = |object: Option<&DynamicObject>| {
        object.and_then(|object| object.data.pointer(pointer)).is_some_and(&wanted)
    };
    wait::wait_for(api, name, SOON, pointer, is).await.unwrap();
}

/// A machine that waits to come from elsewhere. Nothing of it is made yet.
pub async fn expect(tenant: &Tenant<'_>, name: &str) -> Vm {
    let vm =
        tenant.kubevirt.vm(tenant.name(), name).annotation("kubevirt.io/create-migration-target", "true");
    let vm = vm.create().await.unwrap();
    let machines = api(tenant, "VirtualMachineInstance", "virtualmachineinstances");
    until(&machines, name, "/status/phase", |phase| phase == "WaitingForSync").await;
    vm
}

/// The migration of such a machine begins, up to the moment at which its first pod here is to be created.
pub async fn receive(tenant: &Tenant<'_>, name: &str) {
    let machines = api(tenant, "VirtualMachineInstance", "virtualmachineinstances");
    let migrations = api(tenant, "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations");
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {
            "name": "receiving", "labels": { "kubevirt.io/vmi-name": name },
            "finalizers": ["kubevirt.io/migrationJobFinalize"],
        },
        "spec": { "vmiName": name, "receive": { "migrationID": "from-elsewhere" } },
    });
    migrations.create(&PostParams::default(), &serde_json::from_value(migration).unwrap()).await.unwrap();
    until(&machines, name, "/status/migrationState/targetState", Value::is_object).await;
    // What the other cluster's source would say.
    let source = json!({
        "migrationUID": "a-migration-there", "pod": "source", "node": "elsewhere", "nodeSelectors": {},
        "selinuxContext": "none", "virtualMachineInstanceUID": "a-machine-there",
    });
    let told = Patch::Merge(json!({ "status": { "migrationState": { "sourceState": source } } }));
    machines.patch(name, &PatchParams::default(), &told).await.unwrap();
}
