//! Installations of KubeVirt, and what its kinds have in common.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

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

/// An installation of KubeVirt: where its controller lives.
#[derive(Clone, Debug, Deserialize)]
pub struct KubeVirtWire {
    /// Name, namespace, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
}
kubevirt_kind!(KubeVirtWire, "KubeVirt", "kubevirts");

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

/// All KubeVirt objects; a cluster should have one.
#[derive(Debug, Default)]
pub struct KubeVirts {
    store: Store<()>,
}

impl KubeVirts {
    /// The oldest one, which is the one that counts; of equally old ones the first by namespace and name.
    #[must_use]
    pub fn oldest(&self) -> Option<&Arc<Record<()>>> {
        self.store
            .iter()
            .min_by(|a, b| (a.created, &a.namespace, &a.name).cmp(&(b.created, &b.namespace, &b.name)))
    }
}

impl Indexed for KubeVirts {
    type Wire = KubeVirtWire;
    type Body = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.store
    }
    fn meta(wire: &KubeVirtWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(_wire: &KubeVirtWire) {}
    fn affects(_: &Key) -> Affected {
        Affected::Everywhere
    }
}
