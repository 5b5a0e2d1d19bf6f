//! Applies watch events of quotas.
//!
//! A changed limit goes this way: [`State::see_quota`] → [`State::on_limits_changed`], where the ledger takes over the
//! limits, the accounts take back the decisions that are not recorded, and the status is marked for a write. The queue then
//! reviews which classes could ever fit, and [`State::plan`] decides again. A quota that counts other things than before is
//! [another one](State::renew_quotas) to the queue.

use std::collections::BTreeSet;

use sluice_engine::QuotaId;
use sluice_index::{ArqWire, NamespaceId, QuotaChange, QuotaRecord, Source, Version};

use super::{State, uid_of};
use crate::config::Moment;

pub(super) fn version(quota: &ArqWire) -> Version {
    Version::parse(quota.metadata.resource_version.as_deref())
}

impl State {
    pub fn begin_quotas(&mut self) {
        self.cluster.quotas.begin_list();
    }

    /// The list of quotas is complete.
    pub fn end_quotas(&mut self, now: Moment) {
        for id in self.cluster.quotas.end_list() {
            self.forget_quota(id, now);
        }
        let confirmed = self.recorder.end_list();
        self.accounts.on_charges_confirmed(&self.cluster, confirmed);
        self.carry_out();
    }

    /// A quota was listed; others of the list may follow.
    pub fn apply_listed_quota(&mut self, quota: &ArqWire, now: Moment) {
        self.recorder.list_version(version(quota));
        self.apply_quota(quota, now);
    }

    /// The watch has shown a quota, in the order of versions.
    pub fn apply_watched_quota(&mut self, quota: &ArqWire, now: Moment) {
        self.apply_quota(quota, now);
        let confirmed = self.recorder.reach(version(quota));
        self.accounts.on_charges_confirmed(&self.cluster, confirmed);
        self.carry_out();
    }

    /// The watch has shown that a quota is deleted, in the order of versions.
    pub fn delete_watched_quota(&mut self, quota: &ArqWire, now: Moment) {
        self.delete_quota(quota, now);
        let confirmed = self.recorder.reach(version(quota));
        self.accounts.on_charges_confirmed(&self.cluster, confirmed);
        self.carry_out();
    }

    /// A quota was added or modified.
    pub fn apply_quota(&mut self, wire: &ArqWire, now: Moment) {
        self.see_quota(wire, Source::Watch, now);
    }

    /// A quota is this, by the watch or an answer.
    pub(super) fn see_quota(&mut self, wire: &ArqWire, by: Source, now: Moment) {
        if let Some(old) = self.cluster.quotas.replaced_by(wire, &self.cluster.namespaces) {
            self.forget_quota(old, now);
        }
        let before = self.cluster.recorded_charges(wire);
        match self.cluster.quotas.upsert(wire, by, &mut self.cluster.namespaces) {
            QuotaChange::Added(id) => {
                self.accounts.open_ledger(&self.cluster, id);
                self.accounts.reclassify_each(&self.cluster, self.cluster.namespaces_of(id), now);
                self.on_charges_seen(id, before, now);
            }
            QuotaChange::Meaning(id) => {
                let id = self.on_meaning_changed(id, now);
                self.on_charges_seen(id, before, now);
            }
            QuotaChange::Limits(id) => {
                let id = self.on_limits_changed(id, now);
                self.on_charges_seen(id, before, now);
            }
            QuotaChange::Status(id) => {
                self.on_charges_seen(id, before, now);
                self.on_status_seen(id, &wire.metadata, now);
                self.recorder.restate(id);
            }
            QuotaChange::Same => {}
        }
        self.carry_out();
    }

    /// Returns the quota's handle.
    pub(super) fn on_limits_changed(&mut self, id: QuotaId, now: Moment) -> QuotaId {
        if !self.accounts.replace_limits(&self.cluster, id) {
            return self.on_meaning_changed(id, now);
        }
        let mut undone = self.recorder.overtake(id);
        if self.cluster.quotas.get(id).is_some_and(|quota| quota.cluster().is_some()) {
            // A charge that is recorded after a change of limits does not show that those were known, as the status of a
            // quota of one namespace does: only the list does that is read before the pods go.
            undone.extend(self.unlisted_decisions(id));
        }
        self.accounts.revert_decisions(&self.cluster, &undone, now);
        self.carry_out();
        self.recorder.restate(id);
        id
    }

    /// Returns the quota's new handle.
    pub(super) fn on_meaning_changed(&mut self, id: QuotaId, now: Moment) -> QuotaId {
        self.renew_quotas(&[id], now).first().copied().unwrap_or(id)
    }

    fn delete_quota(&mut self, wire: &ArqWire, now: Moment) {
        let Some(id) = self.cluster.find_quota(wire) else { return };
        if self.cluster.quotas.get(id).is_some_and(|record| record.uid == uid_of(&wire.metadata)) {
            self.forget_quota(id, now);
        }
    }

    pub(super) fn forget_quota(&mut self, id: QuotaId, now: Moment) {
        let namespaces = self.cluster.namespaces_of(id);
        if let Some(quota) = self.cluster.quotas.remove(id, &mut self.cluster.namespaces)
            && let Some(namespace) = quota.namespace()
        {
            self.recorder.note_gone(namespace, &quota.uid);
        }
        self.drop_quota(id, &namespaces);
        self.accounts.reclassify_each(&self.cluster, namespaces, now);
        self.carry_out();
    }

    /// Each of the quotas is another one to the queue, of which nothing is claimed before the pods of its namespaces have
    /// found their stages anew. Returns the new handles.
    pub(super) fn renew_quotas(&mut self, quotas: &[QuotaId], now: Moment) -> Vec<QuotaId> {
        self.accounts.keep_what_is_doubted(&self.cluster, now);
        let (mut renewed, mut namespaces, mut kept, mut lost) = (vec![], BTreeSet::new(), vec![], vec![]);
        for old in quotas.iter().copied() {
            let Some(new) = self.cluster.quotas.renew(old, &mut self.cluster.namespaces) else { continue };
            let is_kept = self.accounts.rename_quota(&self.cluster, old, new);
            kept.extend(is_kept.then_some(new));
            // The answer is not heard.
            let is_lost = self.cluster.quotas.get(new).is_some_and(QuotaRecord::is_record_lost);
            lost.extend((is_lost && self.recorder.is_creating(old)).then_some(new));
            self.recorder.rename_quota(&self.cluster, old, new);
            self.reporter.rename_quota(old, new);
            let of_quota = self.cluster.namespaces_of(new);
            self.drop_quota(old, &of_quota);
            namespaces.extend(of_quota);
            renewed.push(new);
        }
        for namespace in &namespaces {
            // The quotas are paused first, so that what is to be kept in them is as well.
            self.accounts.reclassify_later(&self.cluster, *namespace, Vec::new());
        }
        for quota in kept {
            self.keep_recorded(quota, now);
        }
        for quota in lost {
            self.on_charge_lost(quota, now);
        }
        self.accounts.reclassify_each(&self.cluster, namespaces, now);
        self.carry_out();
        renewed
    }

    /// The quota is no more. The pods of its namespaces have to find their stage anew.
    fn drop_quota(&mut self, id: QuotaId, namespaces: &[NamespaceId]) {
        self.recorder.forget_quota(id);
        self.reporter.forget_quota(id);
        self.accounts.drop_quota(id, namespaces);
    }
}
