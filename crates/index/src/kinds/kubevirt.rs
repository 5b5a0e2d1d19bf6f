//! Installations of KubeVirt, and what its kinds have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use sluice_engine::vm::{KubeVirtFacts, OverheadRatio};
use sluice_engine::{Amount, Quantity};

use crate::quantity::{QuantityText, ResourceTexts, resource_list};
use crate::store::{Affected, Indexed, Key, Record, Store};

/// Gives a type the identity of one of KubeVirt's kinds.
macro_rules! kubevirt_kind {
    ($wire:ident, $kind:literal, $plural:literal) => {
        impl kube::Resource for $wire {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                "kubevirt.io".into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(super) use kubevirt_kind;

/// An installation of KubeVirt: where its controller lives, and what it adds to the memory of guests.
#[derive(Clone, Debug, Deserialize)]
pub struct KubeVirtWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: KubeVirtSpecWire,
    /// The part of the status that matters here.
    #[serde(default)]
    pub status: KubeVirtStatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct KubeVirtSpecWire {
    /// `spec.configuration`.
    #[serde(default)]
    pub configuration: Option<KubeVirtConfigurationWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtConfigurationWire {
    /// What the memory beside a guest is multiplied by.
    #[serde(default)]
    pub additional_guest_memory_overhead_ratio: Option<String>,
    #[serde(default)]
    pub network: Option<KubeVirtNetworkWire>,
    /// How much of their guests launchers ask for.
    #[serde(default)]
    pub developer_configuration: Option<DeveloperConfigurationWire>,
}

/// `spec.configuration.developerConfiguration` of a KubeVirt.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeveloperConfigurationWire {
    #[serde(default)]
    cpu_allocation_ratio: Option<QuantityText>,
    #[serde(default)]
    memory_overcommit: Option<QuantityText>,
}

/// `spec.configuration.network` of a KubeVirt.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct KubeVirtNetworkWire {
    #[serde(default)]
    binding: Option<BTreeMap<String, BindingPluginWire>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingPluginWire {
    #[serde(default)]
    compute_resource_overhead: Option<OverheadWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct OverheadWire {
    #[serde(default, deserialize_with = "resource_list")]
    requests: ResourceTexts,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct KubeVirtStatusWire {
    /// The version that runs.
    #[serde(default, rename = "observedKubeVirtVersion")]
    pub observed_version: Option<String>,
}
kubevirt_kind!(KubeVirtWire, "KubeVirt", "kubevirts");

/// A condition of one of KubeVirt's objects.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ConditionWire {
    #[serde(default, rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
}

/// All KubeVirt objects; a cluster should have one.
#[derive(Debug, Default)]
pub struct KubeVirts {
    store: Store<KubeVirtFacts>,
}

impl KubeVirts {
    /// The oldest one, which is the one that counts; of equally old ones the first by namespace and name.
    #[must_use]
    pub fn oldest(&self) -> Option<&Arc<Record<KubeVirtFacts>>> {
        self.store
            .iter()
            .min_by(|a, b| (a.created, &a.namespace, &a.name).cmp(&(b.created, &b.namespace, &b.name)))
    }
}

/// The minor version of `v1.7.0` or `1.7`; `None` of another major version.
fn minor(version: &str) -> Option<u32> {
    let (major, rest) = version.strip_prefix('v').unwrap_or(version).split_once('.')?;
    rest.split('.').next().filter(|_| major == "1")?.parse().ok()
}

/// What a plugin adds. An amount that cannot be read, or is negative, adds nothing.
fn memory(plugin: &BindingPluginWire) -> Option<Amount> {
    let requests = &plugin.compute_resource_overhead.as_ref()?.requests;
    let (_, text) = requests.iter().find(|(name, _)| name == "memory")?;
    Quantity::parse_json_text(&text.0).ok().map(Amount::from).filter(|amount| *amount > Amount::ZERO)
}

/// KubeVirt refuses a configuration with another number (`pkg/virt-config/configuration.go`, `validateConfig`).
fn positive(text: &QuantityText) -> Option<u32> {
    text.0.parse().ok().filter(|number| *number > 0)
}

impl Indexed for KubeVirts {
    type Wire = KubeVirtWire;
    type Body = KubeVirtFacts;

    fn store_mut(&mut self) -> &mut Store<KubeVirtFacts> {
        &mut self.store
    }
    fn meta(wire: &KubeVirtWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &KubeVirtWire) -> KubeVirtFacts {
        let configuration = wire.spec.configuration.as_ref();
        let ratio = configuration.and_then(|it| it.additional_guest_memory_overhead_ratio.as_deref());
        let plugins = configuration.and_then(|it| it.network.as_ref()?.binding.as_ref());
        let plugins = plugins.into_iter().flatten();
        let developer = configuration.and_then(|it| it.developer_configuration.as_ref());
        KubeVirtFacts {
            minor: wire.status.observed_version.as_deref().and_then(minor),
            ratio: ratio.and_then(OverheadRatio::parse),
            bindings: plugins.filter_map(|(name, it)| Some((name.as_str().into(), memory(it)?))).collect(),
            cpu_allocation_ratio: developer.and_then(|it| positive(it.cpu_allocation_ratio.as_ref()?)),
            memory_overcommit: developer.and_then(|it| positive(it.memory_overcommit.as_ref()?)),
        }
    }
    fn affects(_: &Key) -> Affected {
        Affected::Everywhere
    }
}
