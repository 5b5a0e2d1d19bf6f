//! KubeVirt's kinds.

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};

fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kubevirt.io", "v1", kind), plural)
}

/// KubeVirt, the installation.
pub(crate) fn installation() -> ApiResource {
    kind("KubeVirt", "kubevirts")
}

pub(crate) fn virtual_machine() -> ApiResource {
    kind("VirtualMachine", "virtualmachines")
}

/// VirtualMachineInstance.
pub(crate) fn vmi() -> ApiResource {
    kind("VirtualMachineInstance", "virtualmachineinstances")
}

/// VirtualMachineInstanceMigration.
pub(crate) fn migration() -> ApiResource {
    kind("VirtualMachineInstanceMigration", "virtualmachineinstancemigrations")
}

pub(crate) fn namespaced(client: &Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, resource)
}

pub(crate) fn all(client: &Client, resource: &ApiResource) -> Api<DynamicObject> {
    Api::all_with(client.clone(), resource)
}
