//! Notices what other leaders have charged (`docs/protocols.md`, *Take-over*).

use sluice_engine::QuotaId;

use super::State;
use crate::config::Moment;

impl State {
    /// Keeps the room of a charge that another leader has made since `before` was recorded. A record without a new charge
    /// gives nothing away, whatever it says: it is put right.
    pub(super) fn on_charges_seen(&mut self, id: QuotaId, before: i64, now: Moment) {
        let Some(quota) = self.cluster.quotas.get(id) else { return };
        let charges = quota.recorded.charges;
        if charges == before || self.recorder.made(charges) {
            return;
        }
        if self.is_leading() {
            self.on_foreign_charge(id, now);
        } else if let Some(meanwhile) = &mut self.charged_meanwhile {
            meanwhile.insert(id);
        }
    }

    /// Another leader has charged the quota, or the record of its charges is lost. Decisions that are not recorded were made
    /// without that charge, so they are reverted. Its room is kept until its requests are dead, and until then nothing that
    /// ends makes room.
    pub(super) fn on_foreign_charge(&mut self, id: QuotaId, now: Moment) {
        let undone = self.recorder.overtake(id);
        self.accounts.revert_decisions(&self.cluster, &undone, now);
        self.keep_recorded(id, now);
        self.accounts.freeze(&self.cluster, id, now);
    }

    /// Keeps what a quota's status holds above the pods' sums, for a while.
    pub(super) fn keep_recorded(&mut self, id: QuotaId, now: Moment) {
        let unrecorded = self.recorder.unrecorded(id);
        self.accounts.reserve_in_flight(&self.cluster, id, &unrecorded, now);
    }
}
