//! Applies watch events of quotas.
//!
//! A changed limit goes this way: [`State::see_quota`] → [`State::on_limits_changed`], where the ledger takes over the
//! limits, decisions that are not recorded are [reverted](State::revert_decisions) and the status is marked for a write. The
//! queue then reviews which classes could ever fit, and [`State::plan`] decides again. A quota that counts other things than
//! before is [another one](State::renew_quotas) to the queue.

use std::collections::BTreeSet;

use sluice_engine::status::enforced;
use sluice_engine::{Ledger, QuotaId};
use sluice_index::{ArqWire, NamespaceId, QuotaChange, Source, Version};

use super::{State, uid_of};
use crate::config::Moment;
use crate::parts::foreign_charges::Place;
use crate::parts::quota_checks::Listed;

pub(super) fn version(quota: &ArqWire) -> Version {
    Version::parse(quota.metadata.resource_version.as_deref())
}

impl State {
    /// A list of quotas begins.
    pub fn begin_quotas(&mut self) {
        self.cluster.quotas.begin_list();
    }

    /// The list of quotas is complete.
    pub fn end_quotas(&mut self, now: Moment) {
        for id in self.cluster.quotas.end_list() {
            self.forget_quota(id, now);
        }
        let confirmed = self.confirmations.end_list();
        self.on_charges_confirmed(confirmed);
    }

    /// A quota was listed; others of the list may follow.
    pub fn apply_listed_quota(&mut self, quota: &ArqWire, now: Moment) {
        self.confirmations.list(version(quota));
        self.apply_quota(quota, now);
    }

    /// The watch has shown a quota, in the order of versions.
    pub fn apply_watched_quota(&mut self, quota: &ArqWire, now: Moment) {
        self.apply_quota(quota, now);
        let confirmed = self.confirmations.reach(version(quota));
        self.on_charges_confirmed(confirmed);
    }

    /// The watch has shown that a quota is deleted, in the order of versions.
    pub fn delete_watched_quota(&mut self, quota: &ArqWire, now: Moment) {
        self.delete_quota(quota, now);
        let confirmed = self.confirmations.reach(version(quota));
        self.on_charges_confirmed(confirmed);
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
                self.open_ledger(id);
                self.reclassify_each(self.cluster.namespaces_of(id), now);
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
                self.writes.mark(id);
            }
            QuotaChange::Same => {}
        }
    }

    /// Returns the quota's handle.
    pub(super) fn on_limits_changed(&mut self, id: QuotaId, now: Moment) -> QuotaId {
        let limits = self.cluster.quotas.get(id).and_then(|quota| quota.compiled.as_ref().ok()).cloned();
        if !limits.is_some_and(|limits| self.stages.queue_mut().replace_hard(id, enforced(&limits))) {
            return self.on_meaning_changed(id, now);
        }
        let mut undone = self.writes.overtake(id);
        if self.cluster.quotas.get(id).is_some_and(|quota| quota.cluster().is_some()) {
            // A charge that is recorded after a change of limits does not show that those were known, as the status of a
            // quota of one namespace does: only the list does that is read before the pods go.
            undone.extend(self.unlisted_decisions(id));
        }
        self.revert_decisions(&undone, now);
        self.writes.mark(id);
        id
    }

    /// Returns the quota's new handle.
    pub(super) fn on_meaning_changed(&mut self, id: QuotaId, now: Moment) -> QuotaId {
        self.renew_quotas(&[id], now).first().copied().unwrap_or(id)
    }

    /// A quota was deleted.
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
            self.checks.note_gone(Listed::Namespace(namespace), &quota.uid);
        }
        self.drop_quota(id, &namespaces);
        self.reclassify_each(namespaces, now);
    }

    /// Each of the quotas is another one to the queue, of which nothing is claimed before the pods of its namespaces have
    /// found their stages anew. Returns the new handles.
    pub(super) fn renew_quotas(&mut self, quotas: &[QuotaId], now: Moment) -> Vec<QuotaId> {
        self.keep_what_is_doubted(now);
        let (mut renewed, mut namespaces, mut kept) = (Vec::new(), BTreeSet::new(), Vec::new());
        for old in quotas.iter().copied() {
            let Some(new) = self.cluster.quotas.renew(old, &mut self.cluster.namespaces) else { continue };
            self.open_ledger(new);
            if self.stages.queue().is_frozen(old) {
                self.stages.queue_mut().freeze(new);
            }
            let is_kept = self.foreign_charges.is_kept(Place::Quota(old))
                | self.reclassification.take_foreign_charges(old);
            kept.extend(is_kept.then_some(new));
            self.foreign_charges.rename(Place::Quota(old), Place::Quota(new));
            self.contests.rename(old, new);
            self.writes.rename(old, new, self.cluster.config.charge_spacing_ms);
            // It may be about no namespace that marks it when its pods have had their turn.
            self.writes.mark(new);
            let of_quota = self.cluster.namespaces_of(new);
            self.drop_quota(old, &of_quota);
            namespaces.extend(of_quota);
            renewed.push(new);
        }
        for namespace in &namespaces {
            // The quotas are paused first, so that what is to be kept in them is as well.
            self.reclassify_later(*namespace, Vec::new());
        }
        for quota in kept {
            self.reserve_in_flight(quota, now);
        }
        self.reclassify_each(namespaces, now);
        renewed
    }

    pub(super) fn open_ledger(&mut self, id: QuotaId) {
        let Some(quota) = self.cluster.quotas.get(id) else { return };
        let limits = quota.compiled.as_ref().ok();
        let ledger = limits.map(|limits| Ledger::new(enforced(limits))).unwrap_or_default();
        match quota.cluster() {
            Some(_) => self.stages.queue_mut().open_shared(id, ledger),
            None => self.stages.queue_mut().open(id, ledger),
        }
    }

    /// The quota is no more. [`Self::reclassify_each`] of its namespaces has to follow.
    fn drop_quota(&mut self, id: QuotaId, namespaces: &[NamespaceId]) {
        self.stages.queue_mut().pause(id);
        self.writes.forget(id);
        self.contests.forget(id);
        self.foreign_charges.forget(Place::Quota(id));
        self.reclassification.close(id, namespaces);
        if !self.reclassification.is_quota_paused(id) {
            self.close_quota(id);
        }
    }

    /// No pod has a claim on the quota any more.
    pub(super) fn close_quota(&mut self, id: QuotaId) {
        self.stages.queue_mut().close(id);
        self.writes.unmark(id);
    }
}
