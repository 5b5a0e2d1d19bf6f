//! VMs that are charged in place of their pods.

use std::sync::Arc;

use sluice_api::names;
use sluice_engine::headroom::{growth_of_launcher, limit_ratio};
use sluice_engine::{Charge, PodId, Uid};
use sluice_index::{Gates, PodRecord};

use super::Accounts;
use super::machines::as_launcher;
use crate::accounts::parts::owners::{Fall, Payer};
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
        fall: Fall,
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
        let is_counted = |pod: &&PodId| matches!(self.stages.get(**pod), Stage::Counted { .. });
        let counted = pods.iter().find(is_counted).filter(|_| fall == Fall::OfThePrice);
        let before = counted.map(|pod| (*pod, self.counted_where_room_is_kept(*pod)));
        for quota in self.stages.recharge(&owner, charge.as_ref()) {
            self.orders.give(Order::Restate(quota));
        }
        if let Some((pod, before)) = before {
            self.keep_what_is_charged_no_more(pod, &before);
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
            (Stage::Counted { .. }, Some(_)) => is_owned,
            // What a target takes more was found by what its source took.
            (Stage::Waiting(_), Some(_)) => {
                is_owned && self.stages.owners().wait(id).is_some_and(|wait| wait.with.is_none())
            }
            // The larger charge stays until it is seen released.
            (Stage::Assumed { charge: assumed, .. }, Some(charge)) => is_owned && assumed.covers(charge),
            (_, None) => false,
        }
    }

    /// The owner that is charged in the pod's place, if there is one.
    pub(super) fn paying_owner(&self, cluster: &Cluster, record: &PodRecord) -> Option<Payer> {
        let owners = self.stages.owners();
        // A pod that is over is charged for its place as an object alone, and not through its VM.
        let ownership = record.ownership().filter(|_| !owners.is_empty() && !record.is_over())?;
        if !cluster.is_launcher(record) {
            return None;
        }
        let namespace = Arc::clone(&cluster.namespaces.get(record.namespace)?.name);
        let (owner, charge) = owners.charged(&Owner { namespace, uid: ownership.machine.clone() })?;
        let charge = self.with_target(cluster, record, &owner, charge);
        Some(Payer { charge, owner: Some(owner) })
    }

    /// What the owner is to be charged with a launcher that waits at the gate beside one that runs. What that takes more
    /// waits for room, but for what KubeVirt itself adds: no update of KubeVirt holds a migration.
    fn with_target(
        &self,
        cluster: &Cluster,
        record: &PodRecord,
        owner: &Owner,
        charged: Arc<Charge>,
    ) -> Arc<Charge> {
        if record.gates == Gates::None {
            return charged;
        }
        let mut running = self.launchers(cluster, owner);
        running.retain(|other| other.gates == Gates::None);
        let Some(target) = as_launcher(record).filter(|_| !running.is_empty()) else { return charged };
        let sources = || running.iter().filter_map(as_launcher);
        let before = cluster.machines.charge(owner, sources());
        let after = cluster.machines.charge(owner, sources().chain([target]));
        let (Ok(Some(before)), Ok(Some(after))) = (before, after) else { return charged };
        // What the calculator does not count is nothing to wait for.
        let namespace = cluster.namespaces.id(&owner.namespace).and_then(|id| cluster.namespaces.get(id));
        let ratio = limit_ratio(namespace.and_then(|namespace| namespace.label(names::LIMIT_RATIO_LABEL)));
        let growth = growth_of_launcher(target, sources(), cluster.machines.allowance(owner, ratio));
        let growth = growth.min(&after.above(&before));
        if growth.is_empty() {
            return charged;
        }
        Arc::new(charged.max(&Charge::from_pairs(before.iter().chain(&growth).cloned())))
    }
}
