//! What tests may do to a state that no event does.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::{Charge, PodId, QuotaId, Resource, Uid};
use sluice_index::{NamespaceId, PodWire, ViewKey};

use super::State;
use crate::accounts::parts::owners::Fall;
use crate::config::{GateConfig, Moment};
use crate::evaluators::{Content, Price, Priced};
use crate::recorder::Recorder;
use crate::recorder::stamp::Stamp;

impl State {
    pub(crate) fn config_mut(&mut self) -> &mut GateConfig {
        &mut self.cluster.config
    }

    /// A pod was seen with this content.
    pub(crate) fn apply_pod_of(&mut self, pod: &serde_json::Value, hash: u64, now: Moment) {
        let wire: PodWire = serde_json::from_value(pod.clone()).unwrap();
        let facts = self.cluster.config.read(&wire, now);
        let view = ViewKey::default().view(&pod.to_string()).unwrap();
        let selected_by = self.accounts.evaluators_config().map_or(0, |config| config.selecting(&view));
        let content = Content { hash, selected_by, revision: self.accounts.evaluators_revision() };
        self.apply_pod_with_content(facts, Some(content), now);
    }

    /// How much more each quota would be charged, by the sums of the first rule in the shadow.
    pub(crate) fn shadow_sums(&self) -> BTreeMap<QuotaId, BTreeMap<Resource, i128>> {
        self.accounts.shadow_sums()
    }

    pub(crate) fn shadow_revision(&self) -> u32 {
        self.accounts.shadow_revision()
    }

    /// Whether evaluators in the shadow are asked later.
    pub(crate) fn asks_shadows_later(&self) -> bool {
        self.accounts.asks_shadows_later()
    }

    /// See [`Accounts::priced_now`](crate::accounts::Accounts::priced_now).
    pub(crate) fn priced_now(&self, namespace: &str, price: Price) -> Option<Priced> {
        self.accounts.priced_now(&self.cluster, namespace, price)
    }

    /// Before anything is written.
    pub(crate) fn set_stamp(&mut self, stamp: Stamp) {
        self.recorder = Recorder::new(stamp);
    }

    pub(crate) fn is_paused(&self, namespace: NamespaceId) -> bool {
        self.accounts.is_paused(namespace)
    }

    pub(crate) fn keep_foreign_charges_until(&mut self, quota: QuotaId, until_ms: u64) {
        self.accounts.keep_foreign_charges_until(quota, until_ms);
    }

    pub(crate) fn reclassify_namespace(&mut self, namespace: NamespaceId, now: Moment) {
        self.accounts.reclassify_all(&self.cluster, namespace, now);
        self.carry_out();
    }

    /// From now on the VM is charged this, whatever is known of it.
    pub(crate) fn recharge(&mut self, namespace: &str, owner: Uid, charge: Option<Arc<Charge>>, now: Moment) {
        self.accounts.recharge(&self.cluster, namespace, owner, charge, Fall::OfThePrice, now);
        self.carry_out();
    }

    pub(crate) fn pods_of_machine(&self, namespace: NamespaceId, machine: &Uid) -> Vec<PodId> {
        self.accounts.pods_of_machine(&self.cluster, namespace, machine)
    }

    /// The ledgers hold what the counted pod takes once more.
    pub(crate) fn charge_twice(&mut self, id: PodId) {
        self.accounts.charge_twice(id);
    }

    /// The pod counts, but takes nothing.
    pub(crate) fn uncharge(&mut self, id: PodId) {
        self.accounts.uncharge(&self.cluster, id);
    }

    /// The pod claims nothing.
    pub(crate) fn forget_claim(&mut self, id: PodId) {
        self.accounts.forget_claim(&self.cluster, id);
    }

    /// How many have a place in the line of a pause.
    pub(crate) fn in_line(&self) -> usize {
        self.accounts.in_line()
    }

    /// When a held target is looked at next, in seconds since the epoch.
    pub(crate) fn charged_pods(&self) -> Option<i128> {
        self.accounts.charged_pods(&self.cluster)
    }

    pub(crate) fn next_target(&self) -> Option<i64> {
        self.accounts.next_target()
    }

    /// What is counted of held pods is what their stages say.
    pub(crate) fn check_held(&self) {
        self.accounts.check_held();
    }
}
