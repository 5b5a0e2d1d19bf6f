//! Target pods of migrations: which of them exist.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::names;
use sluice_engine::Uid;

use super::PodWire;
use crate::store::{Indexed, Record, Store};

/// What is kept of a target pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Uid of the migration it belongs to, by its label.
    pub migration: Uid,
}

/// A target pod.
pub type TargetRecord = Record<Target>;

/// All pods with the label of a migration.
#[derive(Debug, Default)]
pub struct Targets {
    store: Store<Target>,
    seen: HashSet<Uid>,
    by_migration: HashMap<Uid, BTreeSet<Uid>>,
}

impl Targets {
    /// Whether the pod with this uid exists.
    #[must_use]
    pub fn seen(&self, pod: &Uid) -> bool {
        self.seen.contains(pod)
    }

    /// Uids of the migrations that have such pods.
    pub fn migrations(&self) -> impl Iterator<Item = &Uid> {
        self.by_migration.keys()
    }

    /// Uids of the pods with the label of this migration.
    pub fn of_migration(&self, migration: &Uid) -> impl Iterator<Item = &Uid> {
        self.by_migration.get(migration).into_iter().flatten()
    }
}

impl Indexed for Targets {
    type Wire = PodWire;
    type Body = Target;

    fn store_mut(&mut self) -> &mut Store<Target> {
        &mut self.store
    }
    fn meta(wire: &PodWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &PodWire) -> Target {
        let labels = wire.metadata.labels.as_ref();
        let uid = labels.and_then(|map| map.get(names::MIGRATION_JOB_LABEL));
        Target { migration: Uid::parse(uid.map(String::as_str).unwrap_or_default()) }
    }
    fn is_kept(meta: &ObjectMeta) -> bool {
        meta.labels.as_ref().is_some_and(|map| map.contains_key(names::MIGRATION_JOB_LABEL))
    }
    fn concerns(&self, meta: &ObjectMeta) -> bool {
        let is_known = || {
            let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
            self.store.get(namespace.unwrap_or_default(), name.unwrap_or_default()).is_some()
        };
        Self::is_kept(meta) || is_known()
    }
    fn link(&mut self, record: &Arc<TargetRecord>) {
        self.seen.insert(record.uid.clone());
        self.by_migration.entry(record.migration.clone()).or_default().insert(record.uid.clone());
    }
    fn unlink(&mut self, record: &Arc<TargetRecord>) {
        self.seen.remove(&record.uid);
        if let Some(pods) = self.by_migration.get_mut(&record.migration) {
            pods.remove(&record.uid);
            if pods.is_empty() {
                self.by_migration.remove(&record.migration);
            }
        }
    }
}
