//! KubeVirt's objects as far as live migrations and quotas meet.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// Gives a type the identity of one of KubeVirt's kinds.
macro_rules! kubevirt_kind {
    ($wire:ident, $kind:literal, $plural:literal) => {
        impl kube::Resource for $wire {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "kubevirt.io".into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// An installation of KubeVirt: where its controller lives.
#[derive(Clone, Debug, Deserialize)]
pub struct KubeVirtWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
}
kubevirt_kind!(KubeVirtWire, "KubeVirt", "kubevirts");

/// A virtual machine that runs.
#[derive(Clone, Debug, Deserialize)]
pub struct MachineWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
    /// The part of the status that matters here.
    #[serde(default)]
    pub status: MachineStatusWire,
}
kubevirt_kind!(MachineWire, "VirtualMachineInstance", "virtualmachineinstances");

/// `status` of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatusWire {
    /// Where it runs.
    #[serde(default)]
    pub node_name: Option<String>,
    /// How far it is: `Running` and others.
    #[serde(default)]
    pub phase: Option<String>,
    /// What is true of it.
    #[serde(default)]
    pub conditions: Option<Vec<ConditionWire>>,
}

/// A live migration.
#[derive(Clone, Debug, Deserialize)]
pub struct MigrationWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "super::meta::bare")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: MigrationSpecWire,
    /// The part of the status that matters here.
    #[serde(default)]
    pub status: MigrationStatusWire,
}
kubevirt_kind!(MigrationWire, "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations");

/// `spec` of a VirtualMachineInstanceMigration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationSpecWire {
    /// Which virtual machine.
    #[serde(default)]
    pub vmi_name: Option<String>,
    /// Set where the machine comes from another cluster or namespace (decentralised migration); KubeVirt 1.6 and later.
    #[serde(default)]
    pub receive: Option<serde::de::IgnoredAny>,
    /// `system-critical`, `user-triggered` or `system-maintenance`; KubeVirt 1.6 and later.
    #[serde(default)]
    pub priority: Option<String>,
}

/// `status` of a VirtualMachineInstanceMigration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationStatusWire {
    /// How far it is.
    #[serde(default)]
    pub phase: Option<String>,
    /// What is true of it.
    #[serde(default)]
    pub conditions: Option<Vec<ConditionWire>>,
}

/// A condition of one of KubeVirt's objects.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ConditionWire {
    /// Its type.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
}
