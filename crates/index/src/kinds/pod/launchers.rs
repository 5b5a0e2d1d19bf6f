//! Pods of virtual machines: the launchers that run them, and the pods that attach volumes to those.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_api::names;
use sluice_engine::headroom::Source;
use sluice_engine::pod::stops_counting_at;
use sluice_engine::{ChargeRules, Uid};

use super::PodWire;
use super::facts::{bounded, input};
use super::ownership::creator;
use crate::store::{Indexed, Key, Record, Store};

/// The rules by which the pods of virtual machines are counted here. Those of later versions differ for pods that are
/// resized in place, and KubeVirt's are not.
const RULES: ChargeRules = ChargeRules::for_minor(36);

/// What is kept of such a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The VirtualMachineInstance that controls it, by its ownerReference: a claim, for a tenant may create such a pod.
    pub machine: Option<Uid>,
    /// The pod that controls it, as the launcher does a pod that attaches volumes: a claim as well.
    pub launcher: Option<Uid>,
    /// The migration that it was created for, by its label: a claim as well.
    pub migration: Option<Uid>,
    /// Who created it, by the stamp of admission. `None`: it was created before there was a stamp.
    pub created_by: Option<Arc<str>>,
    /// `spec.nodeName`.
    pub node: Option<Box<str>>,
    /// The pod has ended.
    pub finished: bool,
    /// When its deletion is to be over, in seconds since the epoch; `None` if it is not being deleted.
    pub ends_at: Option<i64>,
    /// From when on quotas do not count it, although it is still there.
    pub overdue_at: Option<i64>,
    /// When its resources were last changed, in seconds since the epoch; `None` if they are as it was created.
    pub resized_at: Option<i64>,
    /// As the target of a migration is compared with it. Of a pod with too many extended resources these are left out.
    pub source: Source,
}

/// A pod of a virtual machine.
pub type LauncherRecord = Record<Launcher>;

impl LauncherRecord {
    /// Reads any pod, from a list of one's own for example.
    #[must_use]
    pub fn read(wire: &PodWire) -> Self {
        Self::new(&wire.metadata, Launchers::body(wire))
    }

    /// Whether quotas count it at this time, in seconds since the epoch.
    #[must_use]
    pub fn counts(&self, now: i64) -> bool {
        !self.body.finished && self.body.overdue_at.is_none_or(|at| now < at)
    }
}

/// All pods that a VirtualMachineInstance or another pod controls, and those with the label of a migration.
#[derive(Debug, Default)]
pub struct Launchers {
    store: Store<Launcher>,
    seen: HashMap<Uid, Key>,
    by_migration: HashMap<Uid, BTreeSet<Uid>>,
}

impl Launchers {
    /// Those of a namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> &[Arc<LauncherRecord>] {
        self.store.in_namespace(namespace)
    }

    #[must_use]
    pub fn by_uid(&self, pod: &Uid) -> Option<&Arc<LauncherRecord>> {
        let key = self.seen.get(pod)?;
        self.store.get(&key.namespace, &key.name)
    }

    /// The pods with the label of this migration.
    pub fn of_migration(&self, migration: &Uid) -> impl Iterator<Item = &Arc<LauncherRecord>> {
        self.by_migration.get(migration).into_iter().flatten().filter_map(|uid| self.by_uid(uid))
    }
}

impl Indexed for Launchers {
    type Wire = PodWire;
    type Body = Launcher;

    fn store_mut(&mut self) -> &mut Store<Launcher> {
        &mut self.store
    }
    fn meta(wire: &PodWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &PodWire) -> Launcher {
        let meta = &wire.metadata;
        let controller = |kind: &str| {
            let mut owners = meta.owner_references.iter().flatten();
            let is_it = |owner: &&OwnerReference| owner.kind == kind && owner.controller == Some(true);
            owners.find(is_it).map(|owner| Uid::parse(&owner.uid))
        };
        let (input, _) = input(wire);
        Launcher {
            machine: controller("VirtualMachineInstance"),
            launcher: controller("Pod"),
            migration: migration(meta).map(Uid::parse),
            created_by: creator(meta),
            node: wire.spec.node_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
            finished: matches!(wire.status.phase.as_deref(), Some("Succeeded" | "Failed")),
            ends_at: meta.deletion_timestamp.as_ref().map(|time| time.0.as_second()),
            overdue_at: stops_counting_at(&input),
            resized_at: resized_at(meta),
            source: bounded_source(Source::of(&input, RULES)),
        }
    }
    fn is_kept(meta: &ObjectMeta) -> bool {
        migration(meta).is_some() || meta.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
    }
    fn concerns(&self, meta: &ObjectMeta) -> bool {
        let is_known = || {
            let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
            self.store.get(namespace.unwrap_or_default(), name.unwrap_or_default()).is_some()
        };
        Self::is_kept(meta) || is_known()
    }
    fn link(&mut self, record: &Arc<LauncherRecord>) {
        self.seen.insert(record.uid.clone(), record.key());
        if let Some(migration) = &record.migration {
            self.by_migration.entry(migration.clone()).or_default().insert(record.uid.clone());
        }
    }
    fn unlink(&mut self, record: &Arc<LauncherRecord>) {
        self.seen.remove(&record.uid);
        if let Some(migration) = &record.migration
            && let Some(pods) = self.by_migration.get_mut(migration)
        {
            pods.remove(&record.uid);
            if pods.is_empty() {
                self.by_migration.remove(migration);
            }
        }
    }
}

/// By the entries of `managedFields` for that subresource, which the API server writes.
fn resized_at(meta: &ObjectMeta) -> Option<i64> {
    meta.managed_fields.iter().flatten().filter_map(|entry| Some(entry.time.as_ref()?.0.as_second())).max()
}

/// What is kept of a pod does not depend on how many names a tenant has written into it.
fn bounded_source(source: Source) -> Source {
    let [charge, compute] = [source.charge, source.compute].map(|charge| bounded(charge).0);
    Source { charge, compute, ..source }
}

fn migration(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(names::MIGRATION_JOB_LABEL).map(String::as_str)
}
