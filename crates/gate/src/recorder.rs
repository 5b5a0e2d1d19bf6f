//! What has to be written or read before a pod goes: the charge in the status of each of its quotas, and lists that show
//! that there are no others. The status says besides what people want to know.
//!
//! Pods and quotas come by different watches, so a quota that was created before a pod may be seen after it. The record of a
//! charge in a quota of the namespace shows that the watch of these has come that far
//! ([`Confirmations`](confirmations::Confirmations)). Where there is no such charge the quotas are read once more, after the
//! decision and before the pod goes; and the watch of cluster quotas has to come to the present. A pod that adds nothing to
//! what its owner is charged needs neither.

mod confirmations;
mod lists;
mod marks;
mod overwrites;
mod plan;
mod says;
pub mod stamp;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::{QuotaId, Uid};
use sluice_index::{NamespaceId, Version};

use super::accounts::Accounts;
use super::action::Action;
use super::cluster::Cluster;
use super::config::Moment;
use super::orders::{Decision, Decisions, Listed};
use confirmations::Confirmations;
use lists::Lists;
use overwrites::Overwrites;
pub use says::{is_as_written, is_no_news, is_status_right};
use stamp::Stamp;
pub use writes::InFlight;
use writes::StatusWrites;

/// A list of all quotas is no dearer than a list for each of some namespaces if
/// there are not more quotas than this for each.
const QUOTAS_PER_LIST: usize = 4;

/// Writes and lists that are needed, in flight or to be repeated.
#[derive(Debug)]
pub struct Recorder {
    writes: StatusWrites,
    confirmations: Confirmations,
    lists: Lists,
    overwrites: Overwrites,
}

impl Recorder {
    /// Nothing is to be recorded yet. `stamp` marks the charges that this process records.
    pub fn new(stamp: Stamp) -> Self {
        Self {
            writes: StatusWrites::new(stamp),
            confirmations: Confirmations::default(),
            lists: Lists::default(),
            overwrites: Overwrites::default(),
        }
    }

    /// The status of the quota may have to be written.
    pub fn restate(&mut self, id: QuotaId) {
        self.writes.mark(id);
    }

    /// Nothing is to be written of the quota any more.
    pub fn close(&mut self, id: QuotaId) {
        self.writes.unmark(id);
    }

    /// The next write of the quota has to record the charge of this decision.
    pub fn record(&mut self, id: QuotaId, decision: Decision) {
        self.writes.charge(id, decision);
    }

    /// The decision waits for a list that is requested from now on.
    pub fn await_list(&mut self, listed: Listed, decision: Decision) {
        self.lists.wait(listed, decision);
    }

    /// What waits for a list of the quotas of the namespace may be listed now.
    pub fn list(&mut self, namespace: NamespaceId) {
        self.lists.request(Listed::Namespace(namespace));
    }

    /// The lists to read now.
    pub fn plan_lists(&mut self, cluster: &Cluster, accounts: &Accounts, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        // A namespace is requested again when it is not paused any more.
        let is_put_off = |listed| matches!(listed, Listed::Namespace(id) if accounts.is_paused(id));
        let mut namespaces = Vec::new();
        for listed in self.lists.begin_wanted(now, is_put_off) {
            match listed {
                Listed::Cluster => actions.push(Action::CatchUpClusterQuotas),
                Listed::Targets => actions.push(Action::ListTargets),
                Listed::Namespace(id) => match cluster.namespaces.get(id) {
                    Some(namespace) => namespaces.push((id, Arc::clone(&namespace.name))),
                    None => self.lists.forget(listed),
                },
            }
        }
        if namespaces.len() > 1 && cluster.quotas.len() <= QUOTAS_PER_LIST * namespaces.len() {
            actions.push(Action::ListQuotas(namespaces));
        } else {
            actions.extend(namespaces.into_iter().map(|namespace| Action::ListQuotas(vec![namespace])));
        }
        actions
    }

    pub fn pass_time(&mut self, now: Moment) {
        self.writes.pass_time(now);
        self.lists.pass_time(now);
    }

    /// Whether there is a quota whose status may have to be written now.
    pub fn has_next(&self) -> bool {
        self.writes.has_next()
    }

    /// When there is something to do even if nothing is seen (milliseconds of the monotonic clock).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.writes.next_due_ms().into_iter().chain(self.lists.next_due_ms()).min()
    }

    /// Whether everything that was asked for is answered, and seen.
    pub fn is_quiet(&self) -> bool {
        self.confirmations.is_idle() && self.lists.is_idle() && self.writes.is_idle()
    }

    /// A request to write the status of the quota was answered, whether it is still there or not.
    pub fn end_request(&mut self, id: QuotaId) {
        self.writes.end_request(id);
    }

    /// Ends the write that is in flight.
    pub fn answered(&mut self, id: QuotaId) -> Option<InFlight> {
        self.writes.answered(id)
    }

    /// The API server has answered with the quota as it is now.
    pub fn reset_failures(&mut self, id: QuotaId) {
        self.writes.reset_failures(id);
    }

    /// A quota of a namespace has recorded these charges in this version. Returns them if all quotas that there were before
    /// are seen already.
    pub fn recorded(&mut self, version: Version, charged: Decisions) -> Decisions {
        self.confirmations.recorded(version, charged)
    }

    /// The write failed, or its outcome is not known: these decisions are recorded with the next one.
    pub fn retry_later(&mut self, id: QuotaId, charged: Decisions, after: Option<Duration>, now: Moment) {
        self.writes.retry_later(id, charged, after, now);
    }

    /// Returns the decisions that no write records yet.
    pub fn take_pending(&mut self, id: QuotaId) -> Decisions {
        self.writes.take_pending(id)
    }

    /// The quota is not what it was when its last charges were decided on: returns the decisions that are not recorded, and
    /// are not going to be.
    pub fn overtake(&mut self, id: QuotaId) -> Decisions {
        self.writes.overtake(id)
    }

    /// The decisions that the quota has not recorded.
    pub fn unrecorded(&self, id: QuotaId) -> Decisions {
        self.writes.unrecorded(id)
    }

    /// Whether a request is under way that creates the record of the quota.
    pub fn is_creating(&self, id: QuotaId) -> bool {
        self.writes.is_creating(id)
    }

    /// Whether this process made the charge that was recorded with this `status.charges`.
    pub fn made(&self, charges: i64) -> bool {
        self.writes.made(charges)
    }

    /// The status of the quota is not what was written last. Returns whether to tell that; `None` if it was noted already,
    /// or may be what is being written.
    pub fn note_overwritten(&mut self, id: QuotaId, now: Moment) -> Option<bool> {
        let written_ms = self.writes.last_done_ms(id)?;
        self.overwrites.status_overwritten(id, written_ms, now)
    }

    /// The quota has another handle and other decisions.
    pub fn rename_quota(&mut self, cluster: &Cluster, old: QuotaId, new: QuotaId) {
        self.overwrites.rename(old, new);
        self.writes.rename(old, new, cluster.config.charge_spacing_ms);
        // Pods that have found their stage mark their quotas; a quota without namespaces is marked here alone.
        self.writes.mark(new);
    }

    /// The quota is no more. The answer to a write in flight has no effect.
    pub fn forget_quota(&mut self, id: QuotaId) {
        self.writes.forget(id);
        self.overwrites.forget(id);
    }

    /// A quota of the namespace has ended: a list that is in flight may hold it still.
    pub fn note_gone(&mut self, namespace: NamespaceId, quota: &Uid) {
        self.lists.note_gone(Listed::Namespace(namespace), quota);
    }

    /// A quota of this version was listed; others of the list may follow.
    pub fn list_version(&mut self, version: Version) {
        self.confirmations.list(version);
    }

    /// The list of quotas is complete. Returns what is confirmed by that.
    pub fn end_list(&mut self) -> Decisions {
        self.confirmations.end_list()
    }

    /// The watch of quotas has come to this version. Returns what is confirmed by that.
    pub fn reach(&mut self, version: Version) -> Decisions {
        self.confirmations.reach(version)
    }

    /// Whether the list that is in flight may be believed about the quota.
    pub fn is_to_apply(&self, namespace: NamespaceId, quota: &Uid) -> bool {
        self.lists.is_to_apply(Listed::Namespace(namespace), quota)
    }

    /// All that was in the list is applied. Returns the decisions that it was requested after.
    pub fn on_list_read(&mut self, listed: Listed) -> Decisions {
        self.lists.succeeded(listed)
    }

    /// The list could not be read.
    pub fn on_list_failed(
        &mut self,
        listed: Listed,
        after: Option<Duration>,
        accounts: &Accounts,
        now: Moment,
    ) {
        self.lists.failed(listed, after, |decision| accounts.is_awaiting(*decision), now);
    }

    /// Decisions that no list of cluster quotas has confirmed yet.
    pub fn unlisted(&self) -> Decisions {
        self.lists.unlisted(Listed::Cluster)
    }

    /// No decision waits for a list of cluster quotas any more.
    pub fn forget_cluster_lists(&mut self) {
        self.lists.forget_cluster();
    }
}
