//! Quotas come, change and go: their entries in the queue, and what is kept in them.

use sluice_engine::status::enforced;
use sluice_engine::{Ledger, QuotaId};
use sluice_index::NamespaceId;

use super::Accounts;
use crate::accounts::parts::foreign_charges::Place;
use crate::cluster::Cluster;
use crate::orders::Order;

impl Accounts {
    pub fn open_ledger(&mut self, cluster: &Cluster, id: QuotaId) {
        let Some(quota) = cluster.quotas.get(id) else { return };
        let limits = quota.compiled.as_ref().ok();
        let ledger = limits.map(|limits| Ledger::new(enforced(limits))).unwrap_or_default();
        match quota.cluster() {
            Some(_) => self.stages.queue_mut().open_shared(id, ledger),
            None => self.stages.queue_mut().open(id, ledger),
        }
    }

    /// No pod has a claim on the quota any more.
    pub(super) fn close_quota(&mut self, id: QuotaId) {
        self.stages.queue_mut().close(id);
        self.orders.give(Order::Close(id));
    }

    /// The limits of the quota are others. False if it counts other things than before: then it is another one to the queue.
    pub fn replace_limits(&mut self, cluster: &Cluster, id: QuotaId) -> bool {
        let limits = cluster.quotas.get(id).and_then(|quota| quota.compiled.as_ref().ok());
        limits.is_some_and(|limits| self.stages.queue_mut().replace_hard(id, enforced(limits)))
    }

    /// The quota has another handle, of which nothing is claimed yet. Returns whether room is kept in it for what other
    /// leaders have charged.
    pub fn rename_quota(&mut self, cluster: &Cluster, old: QuotaId, new: QuotaId) -> bool {
        self.open_ledger(cluster, new);
        if self.queue().is_frozen(old) {
            self.stages.queue_mut().freeze(new);
        }
        let is_kept =
            self.foreign_charges.is_kept(Place::Quota(old)) | self.reclassification.take_foreign_charges(old);
        self.foreign_charges.rename(Place::Quota(old), Place::Quota(new));
        is_kept
    }

    /// The quota is no more. [`Self::reclassify_each`] of its namespaces has to follow.
    pub fn drop_quota(&mut self, id: QuotaId, namespaces: &[NamespaceId]) {
        self.stages.queue_mut().pause(id);
        self.foreign_charges.forget(Place::Quota(id));
        self.reclassification.close(id, namespaces);
        if !self.reclassification.is_quota_paused(id) {
            self.close_quota(id);
        }
    }
}
