//! Applies watch events of namespaces, and changes of which of them are targeted.

use sluice_engine::PodId;
use sluice_index::{NamespaceId, NamespaceWire, PodRecord, Targeting};

use super::State;
use crate::config::Moment;
use crate::stage::Stage;

impl State {
    /// A list of namespaces begins.
    pub fn begin_namespaces(&mut self) {
        self.cluster.namespaces.begin_list();
    }

    /// The list of namespaces is complete.
    pub fn end_namespaces(&mut self, now: Moment) {
        for id in self.cluster.namespaces.end_list() {
            self.on_namespace_changed(id, true, now);
        }
        self.forget_pauses_of_gone();
    }

    /// A namespace was added or modified.
    pub fn apply_namespace(&mut self, wire: &NamespaceWire, now: Moment) {
        let change = self.cluster.namespaces.upsert(&wire.metadata);
        if change.is_retargeted {
            self.restate_quotas_about(change.id);
        }
        if self.evaluations.is_on() && (change.is_relabelled || change.is_retargeted) {
            // Evaluators may select it, or its pods, from now on or not any more.
            self.reclassify_all(change.id, now);
        }
        if change.is_relabelled {
            self.on_namespace_changed(change.id, change.is_retargeted, now);
        } else if change.is_retargeted {
            self.reclassify_gated(change.id, now);
        }
        self.see_pause(change.id, &wire.metadata, now);
    }

    /// A namespace was deleted.
    pub fn delete_namespace(&mut self, wire: &NamespaceWire, now: Moment) {
        if let Some(id) = self.cluster.namespaces.remove(wire.metadata.name.as_deref().unwrap_or_default()) {
            self.on_namespace_changed(id, true, now);
        }
        self.forget_pauses_of_gone();
    }

    /// Cluster quotas may select it, or not any more: that matters to all its pods.
    fn on_namespace_changed(&mut self, id: NamespaceId, is_retargeted: bool, now: Moment) {
        if self.cluster.quotas.reselect(id, &mut self.cluster.namespaces) {
            self.reclassify_all(id, now);
        } else if is_retargeted {
            self.reclassify_gated(id, now);
        }
    }

    /// Other namespaces are targeted from now on. Returns how many waiting pods may go because theirs is not.
    pub fn retarget(&mut self, targeting: Targeting, now: Moment) -> usize {
        let mut released = 0;
        let is_worded_anew = self.cluster.namespaces.targeting().selector_text() != targeting.selector_text();
        for id in self.cluster.namespaces.retarget(targeting) {
            self.restate_quotas_about(id);
            let gated = self.gated(id);
            if self.cluster.namespaces.is_targeted(id) == Some(false) {
                let waits =
                    |pod: &&PodId| matches!(self.stages.get(**pod), Stage::Waiting(_) | Stage::Stuck(_));
                released += gated.iter().filter(waits).count();
            }
            if self.evaluations.is_on() {
                self.reclassify_all(id, now);
            } else if !gated.is_empty() {
                self.reclassify_later(id, gated);
            }
        }
        if is_worded_anew {
            self.restate_unenforced();
        }
        self.go_on_reclassifying(now);
        released
    }

    /// Whether a namespace is targeted matters to its gated pods only.
    fn reclassify_gated(&mut self, namespace: NamespaceId, now: Moment) {
        let gated = self.gated(namespace);
        if !gated.is_empty() {
            self.reclassify_later(namespace, gated);
            self.go_on_reclassifying(now);
        }
    }

    /// Gated pods that have no release in flight.
    pub(super) fn gated(&self, namespace: NamespaceId) -> Vec<PodId> {
        let is_in_flight = |record: &PodRecord| self.releases.is_in_flight(&record.uid);
        let is_gated = |id: &PodId| {
            matches!(self.stages.get(*id), Stage::Waiting(_) | Stage::Stuck(_) | Stage::Free { .. })
                && !self.cluster.pods.get(*id).is_some_and(is_in_flight)
        };
        let pods = self.cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
        pods.iter().copied().filter(is_gated).collect()
    }
}
