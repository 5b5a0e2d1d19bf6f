//! What there is to show of cluster quotas.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::status::share_used;
use sluice_engine::{Quantity, QuotaId, StatusTarget, Uid};
use sluice_index::{NamespaceId, QuotaRecord};

use super::State;
use crate::explain::HeldTold;

/// Amounts by key.
type Amounts = Vec<(String, Quantity)>;

/// What there is to show of a cluster quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    pub id: QuotaId,
    /// Its name.
    pub name: Arc<str>,
    pub uid: Uid,
    /// Over all namespaces; or what is wrong with the specification.
    pub total: Result<StatusTarget, Arc<str>>,
    /// How many pods wait for it.
    pub held: usize,
    /// What is told of those pods, with names of namespaces: for administrators only.
    pub held_told: Option<HeldTold>,
    /// What is told of pods that run without an answer of evaluators, as `held_told`.
    pub unevaluated: Option<String>,
    /// By name, the `used` of namespaces; `None` of one that it does not select any more.
    pub namespaces: Vec<(Arc<str>, Option<Amounts>)>,
}

impl State {
    /// Whether [`Self::take_changed_clusters`] has any.
    #[must_use]
    pub fn have_clusters_changed(&self) -> bool {
        self.is_leading()
            && (self.accounts.queue().has_changed() || self.cluster.quotas.have_clusters_changed())
    }

    /// The cluster quotas of which there is something else to show than when this was asked last;
    /// none unless this process leads.
    pub fn take_changed_clusters(&mut self) -> BTreeSet<QuotaId> {
        if !self.is_leading() {
            return BTreeSet::new();
        }
        let mut changed = self.accounts.take_changed();
        changed.extend(self.cluster.quotas.take_changed_clusters());
        changed.retain(|id| self.cluster.quotas.get(*id).is_some_and(|quota| quota.cluster().is_some()));
        changed
    }

    /// What there is to show of the quota could not be: [`Self::take_changed_clusters`] returns it again.
    pub fn note_changed_cluster(&mut self, id: QuotaId) {
        self.cluster.quotas.note_changed_cluster(id);
    }

    /// The names of a quota's namespaces that there is something else to show of than when this was asked last, or `all` of
    /// them; those that it does not select any more too. None while its sums are not complete, and before its charges have
    /// a record: [who records the first one](crate::RecordedIn::NewCharge) shows it first.
    pub fn take_changed_namespaces(&mut self, id: QuotaId, all: bool) -> Option<BTreeSet<Arc<str>>> {
        if self.accounts.is_quota_paused(id) {
            return None;
        }
        let known = self.cluster.quotas.get(id)?;
        if known.compiled.is_ok() && known.cluster()?.charge.is_none() {
            return None;
        }
        let mut names = self.cluster.quotas.take_moved(id);
        let shares = self.accounts.take_changed_shares(id).map(NamespaceId::of_share);
        let quota = self.cluster.quotas.get(id)?;
        let selected = quota.namespaces().filter(|_| all);
        let changed =
            shares.chain(selected).filter_map(|id| Some(Arc::clone(&self.cluster.namespaces.get(id)?.name)));
        names.extend(changed);
        Some(names)
    }

    /// What there is to show of a cluster quota: the total, and these namespaces. None while its sums are not complete.
    #[must_use]
    pub fn cluster_view(&self, id: QuotaId, names: &[Arc<str>]) -> Option<ClusterView> {
        if self.accounts.is_quota_paused(id) {
            return None;
        }
        let quota = self.cluster.quotas.get(id)?;
        let total = match &quota.compiled {
            Ok(_) => Ok(self.accounts.status_of(&self.cluster, id)?),
            Err(wrong) => Err(Arc::clone(wrong)),
        };
        let namespaces = names.iter().map(|name| (Arc::clone(name), self.used_by(id, quota, name)));
        Some(ClusterView {
            id,
            name: Arc::clone(&quota.name),
            uid: quota.uid.clone(),
            total,
            held: self.accounts.queue().held(id),
            held_told: self.accounts.held_told(&self.cluster, id),
            unevaluated: self.accounts.unevaluated_told(&self.cluster, id),
            namespaces: namespaces.collect(),
        })
    }

    fn used_by(&self, id: QuotaId, quota: &QuotaRecord, name: &str) -> Option<Amounts> {
        let namespace = self.cluster.namespaces.id(name).filter(|namespace| quota.is_about(*namespace))?;
        let Ok(compiled) = &quota.compiled else { return Some(Vec::new()) };
        let share = self.accounts.queue().shares(id)?.get(namespace.share());
        let managed =
            self.cluster.managed_status_of_cluster(quota).and_then(|status| status.namespaces.get(name));
        Some(share_used(compiled, self.accounts.queue().ledger(id)?, share, managed))
    }
}
