//! What tests may do to a state that no event does.

use sluice_engine::{Claim, PodId, QuotaId};
use sluice_index::NamespaceId;

use super::State;
use crate::gate::config::{GateConfig, Moment};
use crate::gate::parts::foreign_charges::Place;
use crate::gate::parts::owners::Payer;
use crate::gate::parts::stamp::Stamp;
use crate::gate::parts::status_writes::StatusWrites;
use crate::gate::stage::Stage;

impl State {
    pub(in crate::gate) fn config_mut(&mut self) -> &mut GateConfig {
        &mut self.config
    }

    /// Before anything is written.
    pub(in crate::gate) fn set_stamp(&mut self, stamp: Stamp) {
        self.writes = StatusWrites::new(stamp);
    }

    pub(in crate::gate) fn is_paused(&self, namespace: NamespaceId) -> bool {
        self.reclassification.is_paused(namespace)
    }

    pub(in crate::gate) fn keep_foreign_charges_until(&mut self, quota: QuotaId, until_ms: u64) {
        self.foreign_charges.keep_until(Place::Quota(quota), until_ms);
    }

    pub(in crate::gate) fn reclassify_namespace(&mut self, namespace: NamespaceId, now: Moment) {
        self.reclassify_all(namespace, now);
    }

    /// The ledgers hold what the counted pod takes once more.
    pub(in crate::gate) fn charge_twice(&mut self, id: PodId) {
        let Stage::Counted { charge, quotas } = self.stages.get(id) else { unreachable!() };
        let (charge, quotas) = (charge.clone(), quotas.clone());
        self.stages.queue_mut().apply(Claim::Counted, &quotas, &charge);
    }

    /// The pod counts, but takes nothing.
    pub(in crate::gate) fn uncharge(&mut self, id: PodId) {
        self.forget_claim(id);
        let charge = self.pods.get(id).map(|record| record.charge.clone()).unwrap_or_default();
        self.stages.count(id, Payer::pod(charge), std::sync::Arc::default());
    }

    /// The pod claims nothing.
    pub(in crate::gate) fn forget_claim(&mut self, id: PodId) {
        if let Some(record) = self.pods.get(id).cloned() {
            self.end_claim(id, &record);
        }
    }

    /// How many have a place in the line of a pause.
    pub(in crate::gate) fn in_line(&self) -> usize {
        self.pauses.in_line()
    }

    /// When a held target is looked at next, in seconds since the epoch.
    pub(in crate::gate) fn next_target(&self) -> Option<i64> {
        self.targets.next_due()
    }
}
