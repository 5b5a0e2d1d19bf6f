//! Applies watch events of migrations, and what their targets are told that wait.

use sluice_index::{VmimRecord, VmimWire};

use super::{State, uid_of};
use crate::config::Moment;

impl State {
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

    pub fn delete_migration(&mut self, wire: &VmimWire, now: Moment) {
        let uid = uid_of(&wire.metadata);
        if self.cluster.migrations.forget(&uid) {
            self.accounts.look_at_targets_of(&self.cluster, &uid, now);
        }
        self.carry_out();
    }
}
