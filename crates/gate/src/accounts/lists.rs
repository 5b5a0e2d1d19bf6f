//! The lists that a pod waits for before it goes.

use sluice_engine::{PodId, QuotaId, QuotaSet};
use sluice_index::NamespaceId;
use smallvec::SmallVec;

use super::Accounts;
use crate::cluster::Cluster;
use crate::orders::{Decision, Listed, Order};
use crate::stage::Stage;

impl Accounts {
    /// The lists that have to confirm that a pod that is charged to these quotas is not to be charged to others.
    pub(super) fn lists_to_await(&self, cluster: &Cluster, quotas: &QuotaSet) -> SmallVec<[Listed; 2]> {
        let is_of_namespace =
            |id: &QuotaId| cluster.quotas.get(*id).is_some_and(|quota| quota.namespace().is_some());
        let mut lists = SmallVec::new();
        if !quotas.iter().any(is_of_namespace) {
            lists.push(Listed::Namespace(NamespaceId::of_share(quotas.share())));
        }
        if cluster.quotas.are_cluster_quotas_allowed() {
            lists.push(Listed::Cluster);
        }
        lists
    }

    /// A pod that is not targeted, or that no quota is about, waits for lists that confirm that: for those that matter now,
    /// for it may have found its stage before this process led, and before cluster quotas were allowed or after.
    pub(super) fn await_lists(&mut self, cluster: &Cluster, id: PodId) {
        if !matches!(self.stages.get(id), Stage::Free { awaited: 1.., .. }) {
            return;
        }
        let Some(namespace) = cluster.pods.get(id).map(|pod| pod.namespace) else { return };
        let serial = self.stages.next_serial();
        if cluster.namespaces.is_targeted(namespace) == Some(false) {
            self.stages.place(id, Stage::Free { awaited: 1, serial });
            return self.orders.give(Order::Await(Listed::Targets, (id, serial)));
        }
        let is_allowed = cluster.quotas.are_cluster_quotas_allowed();
        self.stages.place(id, Stage::Free { awaited: 1 + u32::from(is_allowed), serial });
        self.orders.give(Order::Await(Listed::Namespace(namespace), (id, serial)));
        if is_allowed {
            self.orders.give(Order::Await(Listed::Cluster, (id, serial)));
        }
    }

    /// Whether the decision waits to be recorded, or confirmed by a list.
    pub fn is_awaiting(&self, (pod, serial): Decision) -> bool {
        self.stages.is_awaiting(pod, serial)
    }

    /// Whether the decision stands and charges this quota.
    pub fn charges(&self, (pod, serial): Decision, quota: QuotaId) -> bool {
        match self.stages.get(pod) {
            Stage::Assumed { quotas, serial: current, .. } => *current == serial && quotas.contains(&quota),
            _ => false,
        }
    }
}
