//! Targets of migrations that wait at the gate.
//!
//! KubeVirt gives up a target that has been pending for too long: for how long, the migration says, which is the tenant's
//! own. So within their namespace those go first that are given up soon, and before that they are told. The label that names
//! the migration is believed of launchers only, and the migration has to be of their namespace.

use sluice_engine::{Deadline, PodId, Uid};
use sluice_index::{PodRecord, Vmim};

use super::Accounts;
use crate::accounts::parts::held_targets::Outlook;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::orders::News;

/// Targets that are looked at before others get at the state.
const MAX_PER_STEP: usize = 256;

impl Accounts {
    pub fn look_at_targets_of(&mut self, cluster: &Cluster, migration: &Uid, now: Moment) {
        for id in self.targets.of_migration(migration) {
            self.look_at_target(cluster, id, now);
            // When it is given up may be another moment than it was told.
            if self.targets.is_late(id) && self.leading {
                self.orders.tell(News::Held(id, now));
            }
        }
    }

    /// The pod is held: if it says that it is a target, it is to be looked at.
    pub(super) fn hold_target(&mut self, cluster: &Cluster, id: PodId) {
        let record = cluster.pods.get(id);
        match record.and_then(|record| record.ownership()?.migration.as_deref()) {
            Some(migration) => self.targets.hold(id, migration),
            None if self.targets.migration(id).is_some() => self.forget_target(cluster, id),
            None => {}
        }
    }

    /// The pod is not held any more. Returns since when it was.
    pub(super) fn end_hold(&mut self, id: PodId) -> Option<u64> {
        self.targets.forget(id);
        self.stages.end_hold(id)
    }

    fn forget_target(&mut self, cluster: &Cluster, id: PodId) {
        self.targets.forget(id);
        if let Some(record) = cluster.pods.get(id) {
            self.stages.hasten(id, record, None);
        }
    }

    pub fn look_at_due_targets(&mut self, cluster: &Cluster, now: Moment) {
        for _ in 0..MAX_PER_STEP {
            let Some(id) = self.targets.take_due(now.unix_s()) else { break };
            self.look_at_target(cluster, id, now);
        }
    }

    fn look_at_target(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        let target = cluster.pods.get(id).filter(|record| cluster.is_launcher(record));
        let Some((record, deadline)) =
            target.and_then(|record| Some((record, self.deadline(cluster, id, record)?)))
        else {
            return self.forget_target(cluster, id);
        };
        let Outlook { near, is_late, until } = Outlook::of(record.created, deadline, now.unix_s());
        self.stages.hasten(id, record, near);
        self.targets.look_at(id, until);
        if self.targets.set_late(id, is_late) && self.leading {
            self.orders.tell(News::Held(id, now));
        }
    }

    /// When KubeVirt gives up the target that the pod is.
    pub fn deadline(&self, cluster: &Cluster, id: PodId, record: &PodRecord) -> Option<Deadline> {
        let namespace = &cluster.namespaces.get(record.namespace)?.name;
        let migration = cluster.migrations.get(namespace, self.targets.migration(id)?);
        let timeout = migration.map_or(Vmim::DEFAULT_PENDING_TIMEOUT, |migration| migration.pending_timeout);
        Some(Deadline::after(record.created, timeout))
    }

    /// Whether the pod is a target that has been held for long.
    pub fn is_late_target(&self, id: PodId) -> bool {
        self.targets.is_late(id)
    }

    /// The migration whose target the held pod says that it is.
    pub fn migration_of(&self, id: PodId) -> Option<&Uid> {
        self.targets.migration(id)
    }
}
