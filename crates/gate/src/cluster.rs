//! What watches show: the objects, and the questions that they alone answer. Nothing here decides.
//!
//! Watch events change it, by the [state](super::state) alone: whoever decides or acts gets it to read.

mod launchers;
pub mod machines;
mod managed_statuses;
mod migrations;
mod told;

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::{PodId, QuotaId, QuotaKind};
use sluice_index::{ArqWire, NamespaceId, Namespaces, Pods, QuotaRecord, Quotas, Targeting, Version};

use super::action::{QuotaRef, Release};
use super::config::GateConfig;
use super::evaluators::EvaluatorsConfig;
use super::explain::QuotaName;
pub use launchers::age;
use machines::Machines;
use managed_statuses::ManagedStatuses;
use migrations::Migrations;

/// All that is watched, and the settings by which it is read.
#[derive(Debug)]
pub struct Cluster {
    pub config: GateConfig,
    pub pods: Pods,
    pub namespaces: Namespaces,
    pub quotas: Quotas,
    pub managed: ManagedStatuses,
    pub machines: Machines,
    pub migrations: Migrations,
    /// Extended resources that DeviceClasses name.
    pub claimed_resources: BTreeSet<Arc<str>>,
}

impl Cluster {
    /// Nothing was seen yet.
    pub fn new(config: GateConfig, targeting: Targeting) -> Self {
        Self {
            config,
            pods: Pods::default(),
            namespaces: Namespaces::new(targeting),
            quotas: Quotas::default(),
            managed: ManagedStatuses::default(),
            machines: Machines::default(),
            migrations: Migrations::default(),
            claimed_resources: BTreeSet::new(),
        }
    }

    /// How people and requests name a quota.
    pub fn quota_ref(&self, id: QuotaId) -> Option<QuotaRef> {
        let quota = self.quotas.get(id)?;
        let name = Arc::clone(&quota.name);
        Some(match quota.namespace() {
            Some(namespace) => {
                let namespace = Arc::clone(&self.namespaces.get(namespace)?.name);
                QuotaRef::Namespaced { namespace, name }
            }
            None => QuotaRef::Cluster { name },
        })
    }

    /// The first quota about the namespace that cannot be enforced: no pod of it is released meanwhile.
    pub fn invalid_quota(&self, namespace: NamespaceId) -> Option<QuotaId> {
        let is_invalid = |id: &QuotaId| self.quotas.get(*id).is_some_and(|quota| quota.compiled.is_err());
        self.namespaces.get(namespace)?.quotas().iter().copied().find(is_invalid)
    }

    /// Those of these evaluators that select the namespace.
    pub fn selecting_namespace(&self, name: &str, config: &EvaluatorsConfig) -> u16 {
        let namespace = self.namespaces.id(name).and_then(|id| self.namespaces.get(id));
        namespace.map_or(0, |it| config.selecting_namespace(|selector| it.is_selected(selector)))
    }

    pub fn invalid_message(&self, quota: QuotaId) -> String {
        let invalid =
            self.quotas.get(quota).and_then(|quota| Some((&quota.name, quota.compiled.as_ref().err()?)));
        let Some((name, error)) = invalid else { return String::new() };
        format!("quota {name} cannot be enforced: {error}; correct or delete it")
    }

    pub fn quota_name(&self, id: QuotaId) -> Option<QuotaName> {
        let quota = self.quotas.get(id)?;
        let kind = if quota.cluster().is_some() { QuotaKind::Cluster } else { QuotaKind::Namespace };
        Some(QuotaName { kind, name: Arc::clone(&quota.name) })
    }

    pub fn named(&self, namespace: &str, name: &str) -> Option<(PodId, Version)> {
        let id = self.pods.find(self.namespaces.id(namespace)?, name)?;
        Some((id, self.pods.get(id)?.version))
    }

    /// The name of the pod with that of its namespace.
    pub fn full_name(&self, id: PodId) -> Option<String> {
        let record = self.pods.get(id)?;
        Some(format!("{}/{}", self.namespaces.get(record.namespace)?.name, record.name))
    }

    /// The pod as requests name it.
    pub fn address(&self, id: PodId) -> Option<Release> {
        let record = self.pods.get(id)?;
        Some(Release {
            pod: id,
            namespace: Arc::clone(&self.namespaces.get(record.namespace)?.name),
            name: record.name.clone(),
            uid: record.uid.clone(),
            version: record.version,
        })
    }

    /// The namespaces whose pods a quota is about.
    pub fn namespaces_of(&self, id: QuotaId) -> Vec<NamespaceId> {
        self.quotas.get(id).into_iter().flat_map(QuotaRecord::namespaces).collect()
    }

    pub fn find_quota(&self, wire: &ArqWire) -> Option<QuotaId> {
        let meta = &wire.metadata;
        let namespace = self.namespaces.id(meta.namespace.as_deref().unwrap_or_default())?;
        self.quotas.find(namespace, meta.name.as_deref().unwrap_or_default())
    }

    /// The `status.charges` that was known before this event.
    pub fn recorded_charges(&self, wire: &ArqWire) -> i64 {
        let known = self.find_quota(wire).and_then(|id| self.quotas.get(id));
        known.map_or(0, |quota| quota.recorded.charges)
    }
}
