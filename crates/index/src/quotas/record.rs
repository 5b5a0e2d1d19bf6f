//! What is kept of a quota, whichever kind it is of.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::quota_spec::compile;
use sluice_engine::status::enforced;
use sluice_engine::{CompiledQuota, Uid};

use super::namespace_selector::NamespaceSelector;
use super::recorded::{Quantities, Recorded};
use crate::kinds::namespace::NamespaceId;
use crate::list_number::ListNumber;
use crate::quota_spec::QuotaSpecWire;
use crate::version::Version;

#[derive(Debug)]
pub struct QuotaRecord {
    pub name: Arc<str>,
    /// Which pods it is about, before its scopes.
    pub scope: QuotaScope,
    pub uid: Uid,
    /// The version that the rest was read from, or that our last write made.
    pub version: Version,
    /// `metadata.creationTimestamp`, in seconds since the epoch.
    pub created: i64,
    /// What is wanted, ready for use; `Err` names the fields that are wrong.
    pub compiled: Compiled,
    /// What was last recorded: by the status, or by the charge of a cluster quota.
    pub recorded: Recorded,
    pub(super) list: ListNumber,
}

/// A specification ready for use, or what is wrong with it.
pub(super) type Compiled = Result<Arc<CompiledQuota>, Arc<str>>;

/// Which pods a quota is about.
#[derive(Debug)]
pub enum QuotaScope {
    /// Those of one namespace.
    Namespace(NamespaceId),
    /// Those of all namespaces that it selects.
    Cluster(Box<ClusterScope>),
}

/// What only a cluster quota has.
#[derive(Debug)]
pub struct ClusterScope {
    pub(super) selector: NamespaceSelector,
    pub(super) namespaces: BTreeSet<NamespaceId>,
    /// Names of namespaces that it selects now and did not, or the other way round, when this was asked last.
    pub(super) moved: BTreeSet<Arc<str>>,
    /// The object that records its charges.
    pub charge: Option<ChargeObject>,
    /// Whether its status shows limits: charges may have been recorded, even if no object says so any more.
    pub is_shown: bool,
    /// The number of its specification.
    pub(super) generation: i64,
}

/// The identity of the object that records the charges of a cluster quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeObject {
    pub uid: Uid,
    /// The version that was read, or that our last write made.
    pub version: Version,
}

impl QuotaRecord {
    pub(super) fn new(meta: &ObjectMeta, scope: QuotaScope, compiled: Compiled, list: ListNumber) -> Self {
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            scope,
            uid: Uid::parse(meta.uid.as_deref().unwrap_or_default()),
            version: Version::parse(meta.resource_version.as_deref()),
            created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            compiled,
            recorded: Recorded::default(),
            list,
        }
    }

    /// The namespace, if the quota is about one only.
    #[must_use]
    pub const fn namespace(&self) -> Option<NamespaceId> {
        match self.scope {
            QuotaScope::Namespace(namespace) => Some(namespace),
            QuotaScope::Cluster(_) => None,
        }
    }

    /// What only a cluster quota has.
    #[must_use]
    pub fn cluster(&self) -> Option<&ClusterScope> {
        match &self.scope {
            QuotaScope::Namespace(_) => None,
            QuotaScope::Cluster(cluster) => Some(cluster),
        }
    }

    /// Whether charges may have been recorded of which no object says anything any more: there is none beside a status that
    /// was shown before the first charge, or nothing is recorded in it yet, as in one that was made anew.
    #[must_use]
    pub fn is_record_lost(&self) -> bool {
        let is_empty = self.recorded.hard == Quantities::default();
        self.cluster()
            .is_some_and(|cluster| if cluster.charge.is_some() { is_empty } else { cluster.is_shown })
    }

    pub(super) fn cluster_mut(&mut self) -> Option<&mut ClusterScope> {
        match &mut self.scope {
            QuotaScope::Namespace(_) => None,
            QuotaScope::Cluster(cluster) => Some(cluster),
        }
    }

    /// Whether it is about the pods of a namespace.
    #[must_use]
    pub fn is_about(&self, namespace: NamespaceId) -> bool {
        self.namespace() == Some(namespace)
            || self.cluster().is_some_and(|cluster| cluster.namespaces.contains(&namespace))
    }

    /// The namespaces whose pods it is about.
    pub fn namespaces(&self) -> impl Iterator<Item = NamespaceId> {
        let selected = self.cluster().map(|cluster| cluster.namespaces.iter().copied());
        self.namespace().into_iter().chain(selected.into_iter().flatten())
    }
}

/// Reads a specification.
pub(super) fn compiled(spec: &QuotaSpecWire) -> Result<CompiledQuota, Arc<str>> {
    compile(&spec.raw()?).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.join("; ").into()
    })
}

/// Whether two specifications count the same resources of the same pods, so that sums stay right.
pub(super) fn counts_the_same(old: &Compiled, new: &Compiled) -> bool {
    let (Ok(old), Ok(new)) = (old, new) else { return false };
    old.scopes == new.scopes
        && enforced(old).map(|(resource, _)| resource).eq(enforced(new).map(|(resource, _)| resource))
}
