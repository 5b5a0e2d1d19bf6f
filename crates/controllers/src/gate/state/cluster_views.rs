//! What there is to show of cluster quotas.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::status::share_used;
use sluice_engine::{Quantity, QuotaId, StatusTarget, Uid, status_target};
use sluice_index::{NamespaceId, QuotaRecord};

use super::State;

/// What there is to show of a cluster quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Its handle.
    pub id: QuotaId,
    /// Its identity.
    pub uid: Uid,
    /// Over all namespaces; or what is wrong with the specification.
    pub total: Result<StatusTarget, Arc<str>>,
    /// How many pods wait for it.
    pub held: usize,
    /// By name, the `used` of namespaces; `None` of one that it does not select any more.
    pub namespaces: Vec<(Arc<str>, Option<Vec<(String, Quantity)>>)>,
}

impl State {
    /// Whether [`Self::take_changed_clusters`] has any.
    #[must_use]
    pub fn have_clusters_changed(&self) -> bool {
        self.leading && (self.queue.has_changed() || self.quotas.have_clusters_changed())
    }

    /// The cluster quotas of which there is something else to show than when this was asked last; none unless this process leads.
    pub fn take_changed_clusters(&mut self) -> BTreeSet<QuotaId> {
        if !self.leading {
            return BTreeSet::new();
        }
        let mut changed = self.queue.take_changed();
        changed.extend(self.quotas.take_changed_clusters());
        changed.retain(|id| self.quotas.get(*id).is_some_and(|quota| quota.cluster().is_some()));
        changed
    }

    /// What there is to show of a cluster quota: the total, and the namespaces that have changed since this was asked last, or
    /// `all`. None while its sums are not complete.
    pub fn cluster_view(&mut self, id: QuotaId, all: bool) -> Option<ClusterView> {
        if self.reclassification.is_quota_paused(id) {
            return None;
        }
        let moved = self.quotas.take_moved(id);
        let shares = self.queue.take_changed_shares(id);
        let quota = self.quotas.get(id)?;
        let names = |id: NamespaceId| Some(Arc::clone(&self.namespaces.get(id)?.name));
        let names: BTreeSet<Arc<str>> = if all {
            quota.namespaces().filter_map(names).collect()
        } else {
            moved
                .into_iter()
                .chain(shares.into_iter().filter_map(|share| names(NamespaceId::of_share(share))))
                .collect()
        };
        let ledger = self.queue.ledger(id)?;
        let total = match &quota.compiled {
            Ok(compiled) => Ok(status_target(compiled, ledger)),
            Err(wrong) => Err(Arc::clone(wrong)),
        };
        let namespaces = names.into_iter().map(|name| {
            let used = self.used_by(id, quota, &name);
            (name, used)
        });
        Some(ClusterView {
            id,
            uid: quota.uid.clone(),
            total,
            held: self.queue.held(id),
            namespaces: namespaces.collect(),
        })
    }

    fn used_by(&self, id: QuotaId, quota: &QuotaRecord, name: &str) -> Option<Vec<(String, Quantity)>> {
        let namespace = self.namespaces.id(name).filter(|namespace| quota.is_about(*namespace))?;
        let Ok(compiled) = &quota.compiled else { return Some(Vec::new()) };
        let share = self.queue.shares(id)?.get(namespace.share());
        Some(share_used(compiled, self.queue.ledger(id)?, share))
    }
}
