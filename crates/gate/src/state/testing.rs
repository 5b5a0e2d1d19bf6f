//! What tests may do to a state that no event does.

use sluice_engine::{Claim, PodId, QuotaId};
use sluice_index::{NamespaceId, PodWire};

use super::State;
use crate::config::{GateConfig, Moment};
use crate::evaluators::{Content, Price, Priced};
use crate::parts::foreign_charges::Place;
use crate::parts::owners::Payer;
use crate::parts::stamp::Stamp;
use crate::parts::status_writes::StatusWrites;
use crate::stage::Stage;

impl State {
    pub(crate) fn config_mut(&mut self) -> &mut GateConfig {
        &mut self.cluster.config
    }

    /// A pod was seen with this content, which all evaluators select.
    pub(crate) fn apply_pod_of(&mut self, wire: &PodWire, hash: u128, now: Moment) {
        let facts = self.cluster.config.read(wire, now);
        let content = Content { hash, selected_by: u16::MAX, revision: self.evaluations.revision() };
        self.apply_pod_with_content(facts, Some(content), now);
    }

    /// What the evaluators of now charge for a pod of the namespace as it is to be.
    pub(crate) fn priced_now(&self, namespace: &str, price: Price) -> Option<Priced> {
        let in_namespace = self.cluster.selecting_namespace(namespace, self.evaluations.config()?);
        Some(Priced { price, revision: self.evaluations.revision(), in_namespace })
    }

    /// Before anything is written.
    pub(crate) fn set_stamp(&mut self, stamp: Stamp) {
        self.writes = StatusWrites::new(stamp);
    }

    pub(crate) fn is_paused(&self, namespace: NamespaceId) -> bool {
        self.reclassification.is_paused(namespace)
    }

    pub(crate) fn keep_foreign_charges_until(&mut self, quota: QuotaId, until_ms: u64) {
        self.foreign_charges.keep_until(Place::Quota(quota), until_ms);
    }

    pub(crate) fn reclassify_namespace(&mut self, namespace: NamespaceId, now: Moment) {
        self.reclassify_all(namespace, now);
    }

    /// The ledgers hold what the counted pod takes once more.
    pub(crate) fn charge_twice(&mut self, id: PodId) {
        let Stage::Counted { charge, quotas } = self.stages.get(id) else { unreachable!() };
        let (charge, quotas) = (charge.clone(), quotas.clone());
        self.stages.queue_mut().apply(Claim::Counted, &quotas, &charge);
    }

    /// The pod counts, but takes nothing.
    pub(crate) fn uncharge(&mut self, id: PodId) {
        self.forget_claim(id);
        let charge = self.cluster.pods.get(id).map(|record| record.charge.clone()).unwrap_or_default();
        self.stages.count(id, Payer::pod(charge), std::sync::Arc::default());
    }

    /// The pod claims nothing.
    pub(crate) fn forget_claim(&mut self, id: PodId) {
        if let Some(record) = self.cluster.pods.get(id).cloned() {
            self.end_claim(id, &record);
        }
    }

    /// How many have a place in the line of a pause.
    pub(crate) fn in_line(&self) -> usize {
        self.pauses.in_line()
    }

    /// When a held target is looked at next, in seconds since the epoch.
    pub(crate) fn next_target(&self) -> Option<i64> {
        self.targets.next_due()
    }

    /// What is counted of held pods is what their stages say.
    pub(crate) fn check_held(&self) {
        self.stages.check_tally();
    }
}
