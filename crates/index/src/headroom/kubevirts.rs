//! Installations of KubeVirt.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::store::{Affected, Indexed, Key, Record, Store};
use crate::wire::KubeVirtWire;

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
