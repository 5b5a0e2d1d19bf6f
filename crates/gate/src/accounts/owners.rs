//! VMs that are charged in place of their pods.

use std::sync::Arc;

use sluice_engine::{Charge, PodId, Uid};
use sluice_index::PodRecord;

use super::Accounts;
use crate::accounts::parts::owners::Payer;
use crate::cluster::Cluster;
use crate::cluster::machines::Owner;
use crate::config::Moment;
use crate::orders::Order;
use crate::stage::Stage;

impl Accounts {
    /// The pods of a namespace that name this owner, and that KubeVirt has created, are charged together from now on: this,
    /// as long as any of them has no gates or is being released. With `None` each is charged for itself. What is more than
    /// before is charged, whether there is room or not; of decisions that it was not charged for,
    /// those are reverted that can be.
    pub fn recharge(
        &mut self,
        cluster: &Cluster,
        namespace: &str,
        owner: Uid,
        charge: Option<Arc<Charge>>,
        now: Moment,
    ) {
        let owner = Arc::new(Owner { namespace: namespace.into(), uid: owner });
        if self.stages.owners().charged(&owner).map(|(_, known)| known) == charge {
            return;
        }
        let Some(namespace) = cluster.namespaces.id(namespace) else {
            self.stages.recharge(&owner, charge.as_ref());
            return;
        };
        let pods = self.pods_of_machine(cluster, namespace, &owner.uid);
        for quota in self.stages.recharge(&owner, charge.as_ref()) {
            self.orders.give(Order::Restate(quota));
        }
        for id in pods {
            if self.is_charged_by(id, &owner, charge.as_ref()) {
                self.hold_anew(cluster, id);
            } else {
                self.reclassify(cluster, id, namespace, now);
            }
        }
        self.reexamine_attached(cluster, namespace, &owner.uid);
    }

    /// Whether nothing has to be changed about a pod so that its owner is charged this.
    fn is_charged_by(&self, id: PodId, owner: &Owner, charge: Option<&Arc<Charge>>) -> bool {
        let is_owned = self.stages.owners().owner_of(id).is_some_and(|known| **known == *owner);
        match (self.stages.get(id), charge) {
            (Stage::Foreign | Stage::Free { .. } | Stage::Stuck(_), _) => true,
            (Stage::Waiting(_) | Stage::Counted { .. }, Some(_)) => is_owned,
            // The larger charge stays until it is seen released.
            (Stage::Assumed { charge: assumed, .. }, Some(charge)) => is_owned && assumed.covers(charge),
            (_, None) => false,
        }
    }

    /// The owner that is charged in the pod's place, if there is one.
    pub(super) fn paying_owner(&self, cluster: &Cluster, record: &PodRecord) -> Option<Payer> {
        let owners = self.stages.owners();
        // A pod that is over is charged for its place as an object alone, and not through its VM.
        let ownership = record.ownership.as_ref().filter(|_| !owners.is_empty() && !record.is_over())?;
        if !cluster.is_launcher(record) {
            return None;
        }
        let namespace = Arc::clone(&cluster.namespaces.get(record.namespace)?.name);
        let (owner, charge) = owners.charged(&Owner { namespace, uid: ownership.machine.clone() })?;
        Some(Payer { charge, owner: Some(owner) })
    }
}
