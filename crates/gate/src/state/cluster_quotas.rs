//! Applies watch events of cluster quotas and of the objects that record their charges.
//!
//! What quotas of one namespace have in their status is here in an object of its own, so that a charge is a small write
//! however many namespaces the quota is about, and what people are shown may be late.

use sluice_engine::{QuotaId, Uid};
use sluice_index::{AcrqWire, ClusterQuotaChargeWire, QuotaChange, QuotaRecord, Source};

use super::{State, uid_of};
use crate::config::Moment;

impl State {
    /// From now on cluster quotas have an effect, or none.
    pub fn allow_cluster_quotas(&mut self, are_allowed: bool, now: Moment) {
        let moved = self.cluster.quotas.allow_cluster_quotas(are_allowed, &mut self.cluster.namespaces);
        if !are_allowed {
            let decisions = self.recorder.unlisted();
            self.recorder.forget_cluster_lists();
            self.accounts.on_charges_confirmed(&self.cluster, decisions);
        }
        self.accounts.reclassify_each(&self.cluster, moved, now);
        self.carry_out();
    }

    pub fn begin_cluster_quotas(&mut self) {
        self.cluster.quotas.begin_cluster_list();
    }

    /// The list of cluster quotas is complete.
    pub fn end_cluster_quotas(&mut self, now: Moment) {
        for id in self.cluster.quotas.end_cluster_list() {
            self.forget_quota(id, now);
        }
    }

    /// A cluster quota was added or modified.
    pub fn apply_cluster_quota(&mut self, wire: &AcrqWire, now: Moment) {
        if let Some(old) = self.cluster.quotas.replaced_by_cluster(wire) {
            self.forget_quota(old, now);
        }
        let change = self.cluster.quotas.upsert_cluster(wire, &mut self.cluster.namespaces);
        match change.quota {
            QuotaChange::Added(id) => {
                self.accounts.open_ledger(&self.cluster, id);
                self.accounts.reclassify_each(&self.cluster, change.moved, now);
                self.on_charge_known(id, 0, true, now);
                // The quota may be about no namespace: its status says that too.
                self.recorder.restate(id);
            }
            QuotaChange::Meaning(id) => {
                // Namespaces that it is about no more keep its entry until no pod of theirs has a claim on it.
                self.accounts.reclassify_each(&self.cluster, change.moved, now);
                self.on_meaning_changed(id, now);
            }
            QuotaChange::Limits(id) => {
                self.accounts.reclassify_each(&self.cluster, change.moved, now);
                self.on_limits_changed(id, now);
            }
            QuotaChange::Status(_) | QuotaChange::Same => {
                self.accounts.reclassify_each(&self.cluster, change.moved, now);
            }
        }
    }

    pub fn delete_cluster_quota(&mut self, wire: &AcrqWire, now: Moment) {
        let uid = uid_of(&wire.metadata);
        if let Some(id) = self.cluster.quotas.find_cluster_by_uid(&uid) {
            self.forget_quota(id, now);
        }
    }

    pub fn begin_charges(&mut self) {
        self.cluster.quotas.begin_charge_list();
    }

    /// The list of charges is complete.
    pub fn end_charges(&mut self, now: Moment) {
        for id in self.cluster.quotas.end_charge_list() {
            self.on_charge_lost(id, now);
        }
    }

    /// A charge was seen recorded.
    pub fn apply_charge(&mut self, wire: &ClusterQuotaChargeWire, now: Moment) {
        self.see_charge(wire, Source::Watch, now);
    }

    /// The charge is this, by the watch or an answer.
    pub(super) fn see_charge(&mut self, wire: &ClusterQuotaChargeWire, by: Source, now: Moment) {
        let uid = Uid::parse(wire.metadata.name.as_deref().unwrap_or_default());
        let known = self.cluster.quotas.find_cluster_by_uid(&uid).and_then(|id| self.cluster.quotas.get(id));
        let before = known.map_or(0, |quota| quota.recorded.charges);
        let known = known.and_then(|quota| quota.cluster()?.charge.as_ref()).map(|object| object.uid.clone());
        if let Some(id) = self.cluster.quotas.upsert_charge(wire, by) {
            // Another leader has made it in place of one that is gone, with records that were not seen.
            let object = self.cluster.quotas.get(id).and_then(|quota| quota.cluster()?.charge.as_ref());
            let is_new = known.is_none();
            if known.is_some_and(|known| object.is_some_and(|object| object.uid != known)) {
                self.on_charge_lost(id, now);
            }
            self.on_charge_known(id, before, is_new, now);
            self.on_status_seen(id, &wire.metadata, now);
            self.recorder.restate(id);
        }
    }

    /// The object that records a quota's charges was deleted.
    pub fn delete_charge(&mut self, wire: &ClusterQuotaChargeWire, now: Moment) {
        let quota = Uid::parse(wire.metadata.name.as_deref().unwrap_or_default());
        let object = uid_of(&wire.metadata);
        let id = self.cluster.quotas.find_cluster_by_uid(&quota).and_then(|id| self.cluster.quotas.get(id));
        let is_another =
            id.and_then(|quota| quota.cluster()?.charge.as_ref()).is_some_and(|known| known.uid != object);
        if is_another {
            return;
        }
        if let Some(id) = self.cluster.quotas.remove_charge(&quota) {
            self.on_charge_lost(id, now);
        }
    }

    /// `is_new`: the object that records the charges was not known before, or is not there.
    fn on_charge_known(&mut self, id: QuotaId, before: i64, is_new: bool, now: Moment) {
        let is_lost = self.cluster.quotas.get(id).is_some_and(QuotaRecord::is_record_lost);
        // Whether it is the one that this process creates, the answer says.
        if is_new && is_lost && !self.recorder.is_creating(id) {
            return self.on_charge_lost(id, now);
        }
        self.on_charges_seen(id, before, now);
    }

    /// The request to create the object that records the charges was answered. If that is `first`, none was recorded before:
    /// every process shows the quota before it records a charge, and this one was the first to show it. Any other one may
    /// stand in place of one that is gone, with records that were not seen.
    pub(super) fn on_creation_answered(&mut self, id: QuotaId, first: Option<&Uid>, now: Moment) {
        let Some(quota) = self.cluster.quotas.get(id) else { return };
        let known = quota.cluster().and_then(|cluster| cluster.charge.as_ref()).map(|object| &object.uid);
        let is_first = first.is_some() && known == first;
        if !is_first && quota.is_record_lost() {
            self.on_charge_lost(id, now);
        }
    }

    /// Whatever another leader may have recorded last is not known any more.
    pub(super) fn on_charge_lost(&mut self, id: QuotaId, now: Moment) {
        if self.is_leading() {
            self.on_foreign_charge(id, now);
            self.recorder.restate(id);
        }
    }
}
