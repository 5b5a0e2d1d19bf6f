//! Applies watch events of migrations, and what their targets are told that wait.

use std::sync::Arc;

use sluice_engine::PodId;
use sluice_index::{VmimRecord, VmimWire};

use super::{State, uid_of};
use crate::action::{GateEvent, Regarding};
use crate::config::Moment;
use crate::messages::{reasons, target_held};
use crate::parts::events::Text;
use crate::stage::Stage;

impl State {
    /// A list of migrations begins.
    pub fn begin_migrations(&mut self) {
        self.cluster.migrations.begin_list();
    }

    /// The list of migrations is complete.
    pub fn end_migrations(&mut self, now: Moment) {
        for uid in self.cluster.migrations.end_list() {
            self.accounts.look_at_targets_of(&self.cluster, &uid, now);
        }
        self.carry_out();
    }

    /// A migration was added or modified.
    pub fn apply_migration(&mut self, wire: &VmimWire, now: Moment) {
        let record = VmimRecord::read(wire);
        if self.cluster.migrations.see(&record) {
            self.accounts.look_at_targets_of(&self.cluster, &record.uid, now);
        }
        self.carry_out();
    }

    /// A migration was deleted.
    pub fn delete_migration(&mut self, wire: &VmimWire, now: Moment) {
        let uid = uid_of(&wire.metadata);
        if self.cluster.migrations.forget(&uid) {
            self.accounts.look_at_targets_of(&self.cluster, &uid, now);
        }
        self.carry_out();
    }

    /// What is told of a pod that is held for this reason: more if it is a target that is late.
    pub(super) fn text_about_held(&self, id: PodId, text: Text) -> Text {
        let is_held = matches!(self.accounts.stage(id), Stage::Waiting(_) | Stage::Stuck(_));
        let target = self.cluster.pods.get(id).filter(|_| is_held && self.accounts.is_late_target(id));
        match target.and_then(|record| Some((record, self.accounts.deadline(&self.cluster, id, record)?))) {
            Some((record, deadline)) => {
                (reasons::TARGET_HELD, target_held(record.created, deadline, &text.1))
            }
            None => text,
        }
    }

    /// The migration is told what its target is, if that is late.
    pub(super) fn tell_migration(&mut self, id: PodId, namespace: &Arc<str>, (reason, message): &Text) {
        if *reason != reasons::TARGET_HELD {
            return;
        }
        let Some(uid) = self.accounts.migration_of(id) else { return };
        let Some(migration) = self.cluster.migrations.get(namespace, uid) else { return };
        let (name, uid) = (Arc::clone(&migration.name), uid.clone());
        let (regarding, namespace, message) = (Regarding::Migration, Arc::clone(namespace), message.clone());
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }
}
