//! Keeps room for what other leaders have charged (`docs/protocols.md`, *Take-over*).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_engine::{Amount, Charge, PodId, Quantity, QuotaId, Resource};

use super::Accounts;
use crate::accounts::parts::foreign_charges::Place;
use crate::cluster::Cluster;
use crate::cluster::machines::Owner;
use crate::config::Moment;
use crate::orders::{Decision, Order};
use crate::stage::Stage;

impl Accounts {
    /// Keeps what a quota's status holds above the pods' sums, for a while. The charge of decisions that are `unrecorded` is
    /// not in the status yet.
    pub fn reserve_in_flight(
        &mut self,
        cluster: &Cluster,
        id: QuotaId,
        unrecorded: &[Decision],
        now: Moment,
    ) {
        if self.reclassification.defer_foreign_charges(id) {
            return;
        }
        let Some(recorded) = self.recorded_amounts(cluster, id) else { return };
        let unrecorded = self.unrecorded_charges(cluster, id, unrecorded);
        let unrecorded: Vec<&Charge> = unrecorded.iter().map(|charge| &**charge).collect();
        if self.stages.queue_mut().reserve_in_flight(id, recorded, &unrecorded) {
            self.keep_foreign_charges(cluster, id, now);
        }
    }

    /// Whether the quota's record says that at least what is claimed is used.
    pub(super) fn is_recorded(&self, cluster: &Cluster, id: QuotaId) -> bool {
        let (Some(quota), Some(ledger)) = (cluster.quotas.get(id), self.stages.queue().ledger(id)) else {
            return false;
        };
        let Some(recorded) = self.recorded_amounts(cluster, id).filter(|_| !quota.is_record_lost()) else {
            return false;
        };
        let of = |resource: &Resource| recorded.iter().find(|(recorded, _)| recorded == resource);
        ledger.lines().iter().all(|line| of(&line.resource).is_some_and(|(_, amount)| *amount >= line.used()))
    }

    /// What the quota's record says is used. If that is lost, it may have said anything up to the limits.
    fn recorded_amounts(&self, cluster: &Cluster, id: QuotaId) -> Option<Vec<(Resource, Amount)>> {
        let quota = cluster.quotas.get(id)?;
        if quota.is_record_lost() {
            let lines = self.stages.queue().ledger(id)?.lines();
            return Some(lines.iter().map(|line| (line.resource.clone(), line.hard)).collect());
        }
        let readable =
            |(key, used): (&str, Option<Quantity>)| Some((Resource::from_quota_key(key), used?.into()));
        Some(quota.recorded.used.iter().filter_map(readable).collect())
    }

    /// What this process has claimed of the quota by these decisions.
    fn unrecorded_charges(
        &mut self,
        cluster: &Cluster,
        id: QuotaId,
        decisions: &[Decision],
    ) -> Vec<Arc<Charge>> {
        let (mut unrecorded, mut ungranted) = (Vec::new(), BTreeSet::new());
        let mut grown = BTreeSet::new();
        let mut owned: BTreeMap<Arc<Owner>, Vec<PodId>> = BTreeMap::new();
        for (pod, decision) in decisions.iter().copied() {
            if let Some(owner) = self.machine_growth.charged_by(decision) {
                let growth = self.machine_growth.wanted(owner).zip(self.machine_growth.granted(owner));
                let more = growth.map(|(wanted, granted)| Arc::new(wanted.above(granted)));
                unrecorded.extend(more.filter(|_| grown.insert(owner.clone())));
                continue;
            }
            match self.stages.get(pod) {
                Stage::Assumed { charge, serial, .. } if *serial == decision => {
                    match self.stages.owners().owner_of(pod) {
                        Some(owner) => owned.entry(Arc::clone(owner)).or_default().push(pod),
                        None => unrecorded.push(Arc::clone(charge)),
                    }
                }
                _ if ungranted.insert(pod) => {
                    unrecorded.extend(self.ungranted(cluster, pod, id).map(Arc::new));
                }
                _ => {}
            }
        }
        for (owner, pods) in owned {
            let rest = self.stages.taken_without(&owner, id, &pods).total();
            unrecorded.push(Arc::new(self.stages.taken(&owner, id).total().above(&rest)));
        }
        unrecorded
    }

    /// What is held for updates of the pod in the quota and was not allowed yet.
    fn ungranted(&mut self, cluster: &Cluster, id: PodId, quota: QuotaId) -> Option<Charge> {
        let granted = self.pod_growth.granted(&id)?.clone();
        let held = self.admissions.held(id)?.get(&quota)?.clone();
        let namespace = cluster.pods.get(id)?.namespace;
        let granted = self.parts_of(cluster, id, namespace, &granted)?;
        Some(granted.get(&quota).map_or_else(|| held.clone(), |granted| held.above(granted)))
    }

    fn keep_foreign_charges(&mut self, cluster: &Cluster, id: QuotaId, now: Moment) {
        self.foreign_charges.keep_until(Place::Quota(id), self.dead_ms(cluster, now));
    }

    /// Whatever is kept in doubt is kept for as long as what other leaders have recorded.
    pub fn keep_what_is_doubted(&mut self, cluster: &Cluster, now: Moment) {
        for id in self.stages.take_kept_in() {
            self.keep_foreign_charges(cluster, id, now);
        }
    }

    /// What is counted of a pod, or of its owner, in quotas that keep room for other leaders.
    pub(super) fn counted_where_room_is_kept(&self, id: PodId) -> Vec<(QuotaId, Charge)> {
        let Stage::Counted { quotas, .. } = self.stages.get(id) else { return Vec::new() };
        let kept = quotas.iter().copied().filter(|quota| self.foreign_charges.is_kept(Place::Quota(*quota)));
        kept.filter_map(|quota| Some((quota, self.counted(id, quota)?))).collect()
    }

    /// It is counted otherwise now: by an answer about it, or because its VM is seen. How much of what is recorded was its,
    /// and how much that of other releases, is not known, so what it is charged no more is free only when all of them are
    /// seen.
    pub(super) fn keep_what_is_charged_no_more(&mut self, id: PodId, before: &[(QuotaId, Charge)]) {
        for (quota, before) in before {
            let less = self.counted(id, *quota).map(|now| before.above(&now));
            if let Some(less) = less.filter(|less| !less.is_empty()) {
                self.stages.queue_mut().keep_in_flight(*quota, &less);
            }
        }
    }

    /// What a pod that is counted, or its owner, takes of a quota.
    fn counted(&self, id: PodId, quota: QuotaId) -> Option<Charge> {
        match (self.stages.get(id), self.stages.owners().owner_of(id)) {
            (Stage::Counted { quotas, .. }, _) if quotas.binary_search(&quota).is_err() => None,
            (Stage::Counted { .. }, Some(owner)) => Some(self.stages.taken(owner, quota).total()),
            (Stage::Counted { charge, .. }, None) => Some(Charge::clone(charge)),
            _ => None,
        }
    }

    /// Another leader may have given away the room of a pod whose end is not seen here yet. So nothing that ends makes room
    /// until its requests are dead.
    pub fn freeze(&mut self, cluster: &Cluster, id: QuotaId, now: Moment) {
        self.stages.queue_mut().freeze(id);
        self.stages.on_freeze(id);
        self.keep_foreign_charges(cluster, id, now);
    }

    /// Whether the watch of pods has to catch up now with what other leaders have done.
    pub fn begin_catching_up(&mut self) -> bool {
        self.foreign_charges.begin_catching_up()
    }

    /// There was another leader until now.
    pub(super) fn doubt(&mut self, cluster: &Cluster, now: Moment) {
        self.stages.doubt();
        self.foreign_charges.keep_until(Place::Anywhere, self.dead_ms(cluster, now));
    }

    /// When requests that another leader makes now can be under way no more.
    const fn dead_ms(&self, cluster: &Cluster, now: Moment) -> u64 {
        now.mono_ms.saturating_add(cluster.config.in_flight_grace_ms)
    }

    /// Whatever other leaders have done is seen.
    pub fn on_caught_up(&mut self, cluster: &Cluster, now: Moment) {
        self.keep_what_is_doubted(cluster, now);
        for place in self.foreign_charges.caught_up() {
            match place {
                // Pods without an answer may take any part of what the predecessor has recorded. Which those are is not
                // known while pods are classified anew.
                Place::Quota(id)
                    if self.has_unanswered(cluster, id) || self.reclassification.is_quota_paused(id) =>
                {
                    self.keep_foreign_charges(cluster, id, now);
                }
                Place::Quota(id) => self.forget_in_flight(id),
                Place::Anywhere => self.stages.end_doubt(),
            }
        }
    }

    fn forget_in_flight(&mut self, id: QuotaId) {
        let was_frozen = self.stages.queue().is_frozen(id);
        self.stages.queue_mut().forget_in_flight(id);
        if was_frozen {
            self.stages.on_freeze(id);
        }
        self.orders.give(Order::Restate(id));
    }
}
