//! Namespaces as far as budgets depend on them.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::labels::{Labels, opted_out};
use crate::store::{Affected, Indexed, Key, Record, Store};
use crate::wire::NamespaceWire;

/// What is kept of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadroomNamespace {
    /// Its labels.
    pub labels: Labels,
    /// An annotation excludes it from head-room.
    pub opted_out: bool,
}

/// A namespace.
pub type NamespaceRecord = Record<HeadroomNamespace>;

/// All namespaces.
#[derive(Debug, Default)]
pub struct HeadroomNamespaces {
    store: Store<HeadroomNamespace>,
}

impl HeadroomNamespaces {
    /// One by its name.
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
