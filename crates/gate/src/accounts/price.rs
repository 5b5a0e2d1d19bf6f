//! What is charged for a pod: its own charge, that of its VM, what evaluators say, or nothing.

use std::sync::Arc;

use sluice_engine::{Charge, PodId};
use sluice_index::{Gates, PodRecord};

use super::Accounts;
use crate::accounts::parts::evaluations::Evaluation;
use crate::accounts::parts::owners::Payer;
use crate::cluster::machines::Owner;
use crate::cluster::{Cluster, age};
use crate::evaluators::{Price, Priced};

impl Accounts {
    /// What is to be charged for the pod: the one place where that is found. `None`: evaluators have not said it.
    pub fn price(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> Option<Payer> {
        if self.is_exempt(cluster, record) {
            return Some(Payer::pod(Arc::default()));
        }
        let owned = self.paying_owner(cluster, record);
        let native = || owned.clone().unwrap_or_else(|| Payer::pod(Arc::clone(&record.charge)));
        let selected = self.asked_of(cluster, id, record);
        if selected == 0 {
            return Some(native());
        }
        let priced = |price: &Price| match (price, &owned) {
            (Price::Charge(charge), None) => Payer::pod(Arc::clone(charge)),
            _ => native(),
        };
        if let Evaluation::Current(price) = self.evaluations.of(id, selected) {
            return Some(priced(price));
        }
        let is_waiting = record.gates != Gates::None;
        if let Some(last) = self.evaluations.last(id).filter(|_| !is_waiting) {
            return Some(priced(last));
        }
        if is_waiting && (self.has_pause(record.namespace) || self.is_counted_natively(id, selected)) {
            return Some(native());
        }
        None
    }

    /// Whether the pod is charged what Kubernetes counts because evaluators do not work. Which of them select it is known
    /// once it is read by this configuration: until then it would be by any that does not work.
    pub(super) fn is_counted_natively(&self, id: PodId, selected: u16) -> bool {
        self.evaluations.is_read(id) && self.evaluations.counts_natively(selected)
    }

    /// What is charged for the pod, as long as there is no answer about one that runs too.
    pub(super) fn payer(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> Payer {
        self.price(cluster, id, record)
            .or_else(|| self.paying_owner(cluster, record))
            .unwrap_or_else(|| Payer::pod(Arc::clone(&record.charge)))
    }

    /// Whether evaluators say what the pod is charged. Ended pods are charged as ever: they must not keep room because an
    /// evaluator does not work.
    pub(super) fn is_asked_about(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> bool {
        self.asked_of(cluster, id, record) != 0
    }

    /// The evaluators that say it, a bit for each.
    pub(super) fn asked_of(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> u16 {
        if !self.evaluations.is_on() {
            return 0;
        }
        let selected = self.selected_of(cluster, id, record);
        if selected != 0 && self.may_be_evaluated(cluster, id, record) { selected } else { 0 }
    }

    /// Whether evaluators that select the pod say what it is charged.
    pub(super) fn may_be_evaluated(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> bool {
        if record.gates == Gates::Foreign || record.is_over() || record.unreadable().is_some() {
            return false;
        }
        let Some(namespace) = cluster.namespaces.get(record.namespace) else { return false };
        !namespace.quotas().is_empty()
            && cluster.namespaces.is_targeted(record.namespace) == Some(true)
            && !self.is_exempt(cluster, record)
            && !self.is_further_launcher(cluster, id, record)
    }

    /// The evaluators that select the pod and its namespace by their labels.
    pub(super) fn selected_of(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> u16 {
        let Some(config) = self.evaluations.config() else { return 0 };
        let Some(namespace) = cluster.namespaces.get(record.namespace) else { return 0 };
        let by_labels = self.evaluations.selected_by(id, record.gates != Gates::None);
        if by_labels == 0 {
            return 0;
        }
        by_labels & config.selecting_namespace(|selector| namespace.is_selected(selector))
    }

    /// Whether the price was asked for by the evaluators of now.
    pub(super) fn is_of_now(&self, cluster: &Cluster, namespace: &str, priced: &Priced) -> bool {
        let config = self.evaluations.config();
        let in_namespace = config.map_or(0, |config| cluster.selecting_namespace(namespace, config));
        priced.revision == self.evaluations.revision() && priced.in_namespace == in_namespace
    }

    /// Whether the pod is one of a VM that is charged by what is answered about another one. So a migration waits for no
    /// evaluator.
    pub(super) fn is_further_launcher(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> bool {
        self.launchers_beside(cluster, id, record).iter().any(|other| {
            let is_first = |known: &PodRecord| record.gates != Gates::None || age(known) < age(record);
            cluster.pods.get(*other).is_some_and(|known| known.gates == Gates::None && is_first(known))
        })
    }

    /// The other launchers of a VM that is charged, of one of its launchers.
    pub(super) fn launchers_beside(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> Vec<PodId> {
        let Some(ownership) = record.ownership().filter(|_| cluster.machines.are_charged()) else {
            return Vec::new();
        };
        if !cluster.is_launcher(record) {
            return Vec::new();
        }
        let is_other = |other: &PodId| {
            let is_one = |known: &PodRecord| !known.is_over() && cluster.is_launcher(known);
            *other != id && cluster.pods.get(*other).is_some_and(is_one)
        };
        let pods = self.pods_of_machine(cluster, record.namespace, &ownership.machine).into_iter();
        pods.filter(is_other).collect()
    }

    /// The charge of a VM with what is answered about its launchers: the largest of that.
    pub(super) fn with_answers(&self, cluster: &Cluster, owner: &Owner, charge: Charge) -> Charge {
        let Some(namespace) = cluster.namespaces.id(&owner.namespace).filter(|_| self.evaluations.is_on())
        else {
            return charge;
        };
        let mut most = Charge::default();
        for id in self.pods_of_machine(cluster, namespace, &owner.uid) {
            let is_one = |record: &PodRecord| !record.is_over() && cluster.is_launcher(record);
            if let Some(Price::Charge(charge)) = self.evaluations.last(id)
                && cluster.pods.get(id).is_some_and(is_one)
            {
                most = most.max(charge);
            }
        }
        if most.is_empty() {
            return charge;
        }
        Charge::from_pairs(charge.iter().chain(most.iter()).cloned())
    }
}
