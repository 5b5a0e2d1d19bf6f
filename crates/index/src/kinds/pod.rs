//! Pods: as they are decoded (what charge, scopes, gates and head-room depend on), [`PodFacts`] read from that, and what is
//! kept of all of them ([`Pods`]) and of those of virtual machines ([`Launchers`]).

mod cut;
mod facts;
mod launchers;
mod native;
mod ownership;
mod peculiar;
mod platform;
mod records;
mod text;
mod types;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

pub use cut::cut_to_what_counts;
pub use facts::{growth_of, need_of};
pub use launchers::{Launcher, LauncherRecord, Launchers};
pub use native::{NativeChargeError, native_charge};
pub use records::{PodChange, PodRecord, Pods, push_tightly};
pub use text::{PodView, PodWithText, ViewKey};
pub use types::{Gates, Ownership, PlatformKey, PlatformPod, PodFacts, PodReference};

use crate::quantity::{ResourceTexts, resource_list};

#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Pod)]
pub struct PodWire {
    /// Name, namespace, uid, version and times, the label of a migration's target, the creator's stamp, and of a pod that a
    /// VirtualMachineInstance or another pod controls the reference to that; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::of_pod")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpecWire,
    #[serde(default)]
    pub status: PodStatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpecWire {
    /// App containers.
    #[serde(default)]
    pub containers: Vec<ContainerWire>,
    /// Init containers, restartable ones included.
    #[serde(default)]
    pub init_containers: Vec<ContainerWire>,
    /// Overhead of the runtime class.
    #[serde(default, deserialize_with = "resource_list")]
    pub overhead: ResourceTexts,
    /// Pod-level resources.
    #[serde(default)]
    pub resources: Option<ResourcesWire>,
    #[serde(default)]
    pub scheduling_gates: Vec<GateWire>,
    /// Priority, after admission has resolved the class.
    #[serde(default)]
    pub priority: Option<i32>,
    #[serde(default)]
    pub priority_class_name: Option<String>,
    /// Seconds a pod may be active; scope `Terminating`.
    #[serde(default)]
    pub active_deadline_seconds: Option<i64>,
    /// Affinity, as far as it may reach into other namespaces.
    #[serde(default)]
    pub affinity: Option<AffinityWire>,
    /// Where it runs.
    #[serde(default)]
    pub node_name: Option<String>,
    /// Whether it has generic ephemeral volumes. Nothing else of its volumes is kept.
    #[serde(default, rename = "volumes", deserialize_with = "some_are_ephemeral")]
    pub has_ephemeral_volumes: bool,
}

fn some_are_ephemeral<'de, D: Deserializer<'de>>(volumes: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    struct Volume {
        #[serde(default)]
        ephemeral: Option<IgnoredAny>,
    }
    let volumes = Option::<Vec<Volume>>::deserialize(volumes)?;
    Ok(volumes.into_iter().flatten().any(|volume| volume.ephemeral.is_some()))
}

/// A scheduling gate.
#[derive(Clone, Debug, Deserialize)]
pub struct GateWire {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerWire {
    #[serde(default)]
    pub name: String,
    /// What it asks for.
    #[serde(default)]
    pub resources: Option<ResourcesWire>,
    /// `Always` on an init container makes it a restartable one.
    #[serde(default)]
    pub restart_policy: Option<String>,
}

/// A resource list of which absence and emptiness are different things.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ListWire(#[serde(deserialize_with = "resource_list")] pub ResourceTexts);

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ResourcesWire {
    #[serde(default)]
    pub requests: Option<ListWire>,
    #[serde(default)]
    pub limits: Option<ListWire>,
}

/// Pod affinity and anti-affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityWire {
    /// Pods to be near to.
    #[serde(default)]
    pub pod_affinity: Option<PodAffinityWire>,
    /// Pods to be away from.
    #[serde(default)]
    pub pod_anti_affinity: Option<PodAffinityWire>,
}

/// Terms of a pod affinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodAffinityWire {
    /// Terms that have to hold.
    #[serde(default)]
    pub required_during_scheduling_ignored_during_execution: Vec<AffinityTermWire>,
    /// Terms that should hold.
    #[serde(default)]
    pub preferred_during_scheduling_ignored_during_execution: Vec<WeightedTermWire>,
}

impl PodAffinityWire {
    /// Whether any term looks into other namespaces.
    #[must_use]
    pub fn crosses_namespaces(&self) -> bool {
        self.required_during_scheduling_ignored_during_execution.iter().any(AffinityTermWire::crosses)
            || self
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .any(|weighted| weighted.pod_affinity_term.crosses())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WeightedTermWire {
    #[serde(default)]
    pub pod_affinity_term: AffinityTermWire,
}

/// A term of a pod affinity, as far as it names namespaces.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityTermWire {
    #[serde(default)]
    namespaces: Vec<IgnoredAny>,
    /// Even an empty selector counts; only an absent one does not (`docs/quota-semantics.md`, *Scopes*).
    #[serde(default)]
    namespace_selector: Option<IgnoredAny>,
}

impl AffinityTermWire {
    fn crosses(&self) -> bool {
        !self.namespaces.is_empty() || self.namespace_selector.is_some()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatusWire {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(default)]
    pub phase: Option<String>,
    /// The QoS class the API server set.
    #[serde(default)]
    pub qos_class: Option<String>,
    /// Conditions; only `PodResizePending` is looked at.
    #[serde(default)]
    pub conditions: Vec<ConditionWire>,
    /// Statuses of app containers.
    #[serde(default)]
    pub container_statuses: Vec<ContainerStatusWire>,
    #[serde(default)]
    pub init_container_statuses: Vec<ContainerStatusWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionWire {
    #[serde(default, rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub reason: Option<String>,
    /// The generation of the pod that it is about, where the server tells (Kubernetes 1.34).
    #[serde(default)]
    pub observed_generation: Option<i64>,
}

/// What a node reports of a container's resources.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatusWire {
    /// The container's name.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub resources: Option<ResourcesWire>,
    /// What the node has set aside.
    #[serde(default)]
    pub allocated_resources: Option<ListWire>,
}
