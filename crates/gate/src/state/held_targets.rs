//! Targets of migrations that wait at the gate.
//!
//! KubeVirt gives up a target that has been pending for too long: for how long, the migration says, which is the tenant's
//! own. So within their namespace those go first that are given up soon, and before that they are told. The label that names
//! the migration is believed of launchers only, and the migration has to be of their namespace.

use std::sync::Arc;

use sluice_engine::{Deadline, PodId, Uid};
use sluice_index::{PodRecord, Vmim, VmimRecord, VmimWire};

use super::{State, uid_of};
use crate::action::{GateEvent, Regarding};
use crate::config::Moment;
use crate::messages::{reasons, target_held};
use crate::parts::events::Text;
use crate::parts::held_targets::Outlook;
use crate::stage::Stage;

/// Targets that are looked at before others get at the state.
const LOOKS: usize = 256;

impl State {
    /// A list of migrations begins.
    pub fn begin_migrations(&mut self) {
        self.cluster.migrations.begin_list();
    }

    /// The list of migrations is complete.
    pub fn end_migrations(&mut self, now: Moment) {
        for uid in self.cluster.migrations.end_list() {
            self.look_at_targets_of(&uid, now);
        }
    }

    /// A migration was added or modified.
    pub fn apply_migration(&mut self, wire: &VmimWire, now: Moment) {
        let record = VmimRecord::read(wire);
        if self.cluster.migrations.see(&record) {
            self.look_at_targets_of(&record.uid, now);
        }
    }

    /// A migration was deleted.
    pub fn delete_migration(&mut self, wire: &VmimWire, now: Moment) {
        let uid = uid_of(&wire.metadata);
        if self.cluster.migrations.forget(&uid) {
            self.look_at_targets_of(&uid, now);
        }
    }

    fn look_at_targets_of(&mut self, migration: &Uid, now: Moment) {
        for id in self.targets.of_migration(migration) {
            self.look_at_target(id, now);
            // When it is given up may be another moment than it was told.
            if self.targets.is_late(id) && self.leading {
                self.events.news(id, now);
            }
        }
    }

    /// The pod is held: if it says that it is a target, it is to be looked at.
    pub(super) fn hold_target(&mut self, id: PodId) {
        let record = self.cluster.pods.get(id);
        match record.and_then(|record| record.ownership.as_ref()?.migration.as_deref()) {
            Some(migration) => self.targets.hold(id, migration),
            None if self.targets.migration(id).is_some() => self.forget_target(id),
            None => {}
        }
    }

    /// The pod is not held any more. Returns since when it was.
    pub(super) fn end_hold(&mut self, id: PodId) -> Option<u64> {
        self.targets.forget(id);
        self.stages.end_hold(id)
    }

    fn forget_target(&mut self, id: PodId) {
        self.targets.forget(id);
        if let Some(record) = self.cluster.pods.get(id) {
            self.stages.hasten(id, record, None);
        }
    }

    pub(super) fn look_at_due_targets(&mut self, now: Moment) {
        for _ in 0..LOOKS {
            let Some(id) = self.targets.take_due(now.unix_s()) else { break };
            self.look_at_target(id, now);
        }
    }

    fn look_at_target(&mut self, id: PodId, now: Moment) {
        let target = self.cluster.pods.get(id).filter(|record| self.cluster.is_launcher(record));
        let Some((record, deadline)) = target.and_then(|record| Some((record, self.deadline(id, record)?)))
        else {
            return self.forget_target(id);
        };
        let Outlook { near, is_late, until } = Outlook::of(record.created, deadline, now.unix_s());
        self.stages.hasten(id, record, near);
        self.targets.look_at(id, until);
        if self.targets.set_late(id, is_late) && self.leading {
            self.events.news(id, now);
        }
    }

    /// When KubeVirt gives up the target that the pod is.
    fn deadline(&self, id: PodId, record: &PodRecord) -> Option<Deadline> {
        let namespace = &self.cluster.namespaces.get(record.namespace)?.name;
        let migration = self.cluster.migrations.get(namespace, self.targets.migration(id)?);
        let timeout = migration.map_or(Vmim::DEFAULT_PENDING_TIMEOUT, |migration| migration.pending_timeout);
        Some(Deadline::after(record.created, timeout))
    }

    /// What is told of a pod that is held for this reason: more if it is a target that is late.
    pub(super) fn text_about_held(&self, id: PodId, text: Text) -> Text {
        let is_held = matches!(self.stages.get(id), Stage::Waiting(_) | Stage::Stuck(_));
        let target = self.cluster.pods.get(id).filter(|_| is_held && self.targets.is_late(id));
        match target.and_then(|record| Some((record, self.deadline(id, record)?))) {
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
        let Some(uid) = self.targets.migration(id) else { return };
        let Some(migration) = self.cluster.migrations.get(namespace, uid) else { return };
        let (name, uid) = (Arc::clone(&migration.name), uid.clone());
        let (regarding, namespace, message) = (Regarding::Migration, Arc::clone(namespace), message.clone());
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }
}
