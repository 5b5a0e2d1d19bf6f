//! What tests may do to the accounts that no event does.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::{Claim, PodId, QuotaId};

use super::Accounts;
use crate::accounts::parts::foreign_charges::Place;
use crate::accounts::parts::owners::Payer;
use crate::accounts::parts::shadow::Change;
use crate::cluster::Cluster;
use crate::evaluators::{Price, Priced};
use crate::stage::Stage;

impl Accounts {
    pub fn evaluators_revision(&self) -> u32 {
        self.evaluations.revision()
    }

    pub fn asks_shadows_later(&self) -> bool {
        self.shadow.config().is_some_and(|config| config.later != 0)
    }

    pub fn evaluators_config(&self) -> Option<&crate::EvaluatorsConfig> {
        self.evaluations.config()
    }

    /// How much more each quota would be charged, by the sums of the first rule in the shadow.
    pub fn shadow_sums(&self) -> BTreeMap<QuotaId, Change> {
        self.shadow.sums().next().map(|(_, sums)| sums.quotas.clone()).unwrap_or_default()
    }

    /// What the evaluators of now charge for a pod of the namespace as it is to be.
    pub fn priced_now(&self, cluster: &Cluster, namespace: &str, price: Price) -> Option<Priced> {
        let in_namespace = cluster.selecting_namespace(namespace, self.evaluations.config()?);
        Some(Priced { price, revision: self.evaluations.revision(), in_namespace })
    }

    pub fn keep_foreign_charges_until(&mut self, quota: QuotaId, until_ms: u64) {
        self.foreign_charges.keep_until(Place::Quota(quota), until_ms);
    }

    /// The ledgers hold what the counted pod takes once more.
    pub fn charge_twice(&mut self, id: PodId) {
        let Stage::Counted { charge, quotas } = self.stages.get(id) else { unreachable!() };
        let (charge, quotas) = (charge.clone(), quotas.clone());
        self.stages.queue_mut().apply(Claim::Counted, &quotas, &charge);
    }

    /// The pod counts, but takes nothing.
    pub fn uncharge(&mut self, cluster: &Cluster, id: PodId) {
        self.forget_claim(cluster, id);
        let charge = cluster.pods.get(id).map(|record| record.charge.clone()).unwrap_or_default();
        self.stages.count(id, Payer::pod(charge), Arc::default());
    }

    /// The pod claims nothing.
    pub fn forget_claim(&mut self, cluster: &Cluster, id: PodId) {
        if let Some(record) = cluster.pods.get(id).cloned() {
            self.end_claim(id, &record);
        }
    }

    /// How many have a place in the line of a pause.
    pub fn in_line(&self) -> usize {
        self.pauses.in_line()
    }

    /// How many pods the first quota is charged for; `None`: its sums are not complete.
    pub fn charged_pods(&self, cluster: &Cluster) -> Option<i128> {
        let (id, _) = cluster.quotas.iter().next()?;
        self.complete(cluster, id)?;
        let used = self.queue().ledger(id)?.line(&sluice_engine::Resource::Pods)?.used();
        Some(used.nanos() / 1_000_000_000)
    }

    /// When a held target is looked at next, in seconds since the epoch.
    pub fn next_target(&self) -> Option<i64> {
        self.targets.next_due()
    }

    /// What is counted of held pods is what their stages say.
    pub fn check_held(&self) {
        self.stages.check_tally();
    }
}
