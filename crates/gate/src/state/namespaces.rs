//! Applies watch events of namespaces, and changes of which of them are targeted.

use sluice_engine::PodId;
use sluice_index::{NamespaceId, NamespaceWire, Targeting};

use super::State;
use crate::config::Moment;
use crate::stage::Stage;

impl State {
    pub fn begin_namespaces(&mut self) {
        self.cluster.namespaces.begin_list();
    }

    /// The list of namespaces is complete.
    pub fn end_namespaces(&mut self, now: Moment) {
        for id in self.cluster.namespaces.end_list() {
            self.on_namespace_changed(id, true, now);
        }
        self.accounts.forget_pauses_of_gone(&self.cluster);
        self.carry_out();
    }

    /// A namespace was added or modified.
    pub fn apply_namespace(&mut self, wire: &NamespaceWire, now: Moment) {
        let change = self.cluster.namespaces.upsert(&wire.metadata);
        if change.is_retargeted {
            self.restate_quotas_about(change.id);
        }
        if self.accounts.asks_evaluators() && (change.is_relabelled || change.is_retargeted) {
            // Evaluators may select it, or its pods, from now on or not any more.
            self.accounts.reclassify_all(&self.cluster, change.id, now);
        }
        if change.is_relabelled || change.is_retargeted {
            self.accounts.look_at_shadows_of(&self.cluster, change.id);
        }
        if change.is_relabelled {
            self.on_namespace_changed(change.id, change.is_retargeted, now);
        } else if change.is_retargeted {
            self.accounts.reclassify_gated(&self.cluster, change.id, now);
        }
        self.accounts.see_pause(&self.cluster, change.id, &wire.metadata, now);
        self.carry_out();
    }

    pub fn delete_namespace(&mut self, wire: &NamespaceWire, now: Moment) {
        if let Some(id) = self.cluster.namespaces.remove(wire.metadata.name.as_deref().unwrap_or_default()) {
            self.on_namespace_changed(id, true, now);
        }
        self.accounts.forget_pauses_of_gone(&self.cluster);
        self.carry_out();
    }

    /// Cluster quotas may select it, or not any more: that matters to all its pods.
    fn on_namespace_changed(&mut self, id: NamespaceId, is_retargeted: bool, now: Moment) {
        if self.cluster.quotas.reselect(id, &mut self.cluster.namespaces) {
            self.accounts.reclassify_all(&self.cluster, id, now);
        } else if is_retargeted {
            self.accounts.reclassify_gated(&self.cluster, id, now);
        }
    }

    /// Other namespaces are targeted from now on. Returns how many waiting pods may go because theirs is not.
    pub fn retarget(&mut self, targeting: Targeting, now: Moment) -> usize {
        let mut released = 0;
        let is_worded_anew = self.cluster.namespaces.targeting().selector_text() != targeting.selector_text();
        for id in self.cluster.namespaces.retarget(targeting) {
            self.restate_quotas_about(id);
            self.accounts.look_at_shadows_of(&self.cluster, id);
            let gated = self.accounts.gated(&self.cluster, id);
            if self.cluster.namespaces.is_targeted(id) == Some(false) {
                let waits =
                    |pod: &&PodId| matches!(self.accounts.stage(**pod), Stage::Waiting(_) | Stage::Stuck(_));
                released += gated.iter().filter(waits).count();
            }
            if self.accounts.asks_evaluators() {
                self.accounts.reclassify_all(&self.cluster, id, now);
            } else if !gated.is_empty() {
                self.accounts.reclassify_later(&self.cluster, id, gated);
            }
        }
        if is_worded_anew {
            self.restate_unenforced();
        }
        self.accounts.go_on_reclassifying(&self.cluster, now);
        self.carry_out();
        released
    }
}
