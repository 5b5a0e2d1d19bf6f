//! Namespaces: what budgets depend on, and for the gate which are targeted.

mod targeting;

use std::sync::Arc;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

pub use targeting::{Namespace, NamespaceChange, NamespaceId, Namespaces, Targeting};

use crate::labels::{Labels, opted_out};
use crate::store::{Affected, Indexed, Key, Record, Store};

/// A namespace: its labels, whether it is being deleted, and whether it is excluded from head-room.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = v1::Namespace)]
pub struct NamespaceWire {
    /// Name, uid, version, times, labels and annotations: any of both may be what a cluster quota selects by.
    #[serde(deserialize_with = "crate::meta::labelled")]
    pub metadata: ObjectMeta,
}

/// What is kept of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadroomNamespace {
    pub labels: Labels,
    /// An annotation excludes it from head-room.
    pub opted_out: bool,
}

pub type NamespaceRecord = Record<HeadroomNamespace>;

/// All namespaces as far as budgets depend on them.
#[derive(Debug, Default)]
pub struct HeadroomNamespaces {
    store: Store<HeadroomNamespace>,
}

impl HeadroomNamespaces {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<NamespaceRecord>> {
        self.store.get("", name)
    }

    /// All of them by name.
    #[must_use]
    pub fn all(&self) -> &[Arc<NamespaceRecord>] {
        self.store.in_namespace("")
    }
}

impl Indexed for HeadroomNamespaces {
    type Wire = NamespaceWire;
    type Body = HeadroomNamespace;

    fn store_mut(&mut self) -> &mut Store<HeadroomNamespace> {
        &mut self.store
    }
    fn meta(wire: &NamespaceWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &NamespaceWire) -> HeadroomNamespace {
        HeadroomNamespace { labels: Labels::of(&wire.metadata), opted_out: opted_out(&wire.metadata) }
    }
    fn affects(key: &Key) -> Affected {
        Affected::Namespace(Arc::clone(&key.name))
    }
}
