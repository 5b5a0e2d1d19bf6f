//! Who is charged what: prices, stages, claims and decisions.
//!
//! The accounts read the [cluster](super::cluster) and change nothing but themselves. What others have to do they leave as
//! [orders](super::orders), and are told what came of it. Which requests may have been done is a fact of theirs, so they
//! alone say whether a claim may be taken back.

mod admissions;
mod audit;
mod classify;
mod decisions;
mod evaluations;
mod foreign_charges;
mod growth;
mod held_targets;
mod lacks;
mod leading;
mod lists;
mod machine_growth;
mod machines;
mod next_evaluators;
mod owners;
pub mod parts;
mod pauses;
mod platform;
mod pods;
mod price;
mod quotas;
mod reclassification;
mod releases;
mod rounds;
mod shadow;
mod statuses;
#[cfg(test)]
mod testing;

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::{Charge, CompiledQuota, PodId, QuotaId, ReleaseQueue, ShareId};
use sluice_index::{NamespaceId, PodRecord};

use super::admission::{Judgement, Ticket};
use super::cluster::Cluster;
use super::cluster::machines::Owner;
use super::config::Moment;
use super::evaluators::ReadRound;
use super::orders::{Order, Orders};
use super::stage::Stage;
pub use machines::unknown_text;
use parts::admissions::{Admissions, Wanted};
use parts::evaluations::Evaluations;
use parts::foreign_charges::ForeignCharges;
use parts::growth::Growth;
use parts::held_targets::HeldTargets;
use parts::pauses::Pauses;
use parts::pod_stages::{Held, PodStages};
use parts::quota_sets::QuotaSets;
use parts::reclassification::Reclassification;
use parts::repricing::Repricing;
use parts::sent::Sent;
use parts::shadow::Shadow;
use parts::unevaluated::Unevaluated;

/// The claims of pods' stages and of admitted updates, which the queue's ledgers sum up, and what they rest on.
#[derive(Debug, Default)]
pub struct Accounts {
    leading: bool,
    /// Another process is to lead.
    is_resigning: bool,
    evaluations: Evaluations,
    /// Namespaces that are to be read for their rounds.
    reads: Vec<ReadRound>,
    unevaluated: Unevaluated,
    shadow: Shadow,
    stages: PodStages,
    quota_sets: QuotaSets,
    admissions: Admissions,
    pod_growth: Growth<PodId, Wanted>,
    machine_growth: Growth<Owner, Arc<Charge>>,
    pauses: Pauses,
    targets: HeldTargets,
    reclassification: Reclassification,
    repricing: Repricing,
    foreign_charges: ForeignCharges,
    sent: Sent,
    orders: Orders,
}

impl Accounts {
    /// Whether this process decides.
    pub const fn is_leading(&self) -> bool {
        self.leading
    }

    /// All ledgers, and the pods that wait.
    pub const fn queue(&self) -> &ReleaseQueue {
        self.stages.queue()
    }

    /// Where the pod is on its way.
    pub fn stage(&self, id: PodId) -> &Stage {
        self.stages.get(id)
    }

    /// The VM that is charged for a pod that waits or claims.
    pub fn owner_of(&self, id: PodId) -> Option<&Owner> {
        self.stages.owners().owner_of(id).map(|owner| &**owner)
    }

    pub fn held(&self) -> impl ExactSizeIterator<Item = PodId> {
        self.stages.held()
    }

    /// How many pods are held for this reason.
    pub const fn held_for(&self, why: Held) -> usize {
        self.stages.held_for(why)
    }

    /// What others have to do since this was asked last.
    pub fn take_orders(&mut self) -> Vec<Order> {
        self.orders.take()
    }

    /// The answers to questions about updates since this was asked last.
    pub fn take_answers(&mut self) -> Vec<(Ticket, Judgement)> {
        self.admissions.take_answers()
    }

    /// The quotas of which something else is taken than when this was asked last.
    pub fn take_changed(&mut self) -> BTreeSet<QuotaId> {
        self.stages.queue_mut().take_changed()
    }

    /// The shares of a quota that take something else than when this was asked last.
    pub fn take_changed_shares(&mut self, id: QuotaId) -> impl Iterator<Item = ShareId> + use<> {
        self.stages.queue_mut().take_changed_shares(id).into_iter()
    }

    /// Whether all VMs are appraised.
    pub fn are_machines_appraised(&self) -> bool {
        self.repricing.are_appraised()
    }

    /// Whether pods of the namespace are still to find their stage anew.
    pub fn is_paused(&self, namespace: NamespaceId) -> bool {
        self.reclassification.is_paused(namespace)
    }

    /// Whether the sums of the quota are not complete.
    pub fn is_quota_paused(&self, id: QuotaId) -> bool {
        self.reclassification.is_quota_paused(id)
    }

    /// Whether every pod has its stage, and every VM its charge.
    pub fn is_settled(&self) -> bool {
        self.reclassification.is_idle() && self.repricing.are_appraised()
    }

    /// Whether everything that was started is answered and done.
    pub fn is_quiet(&self) -> bool {
        self.is_settled() && self.evaluations.is_idle() && self.sent.is_idle()
    }

    /// When there is something to do even if nothing is seen (milliseconds of the monotonic clock).
    pub fn next_due_ms(&self, cluster: &Cluster, now: Moment) -> Option<u64> {
        let decides = self.leading && !self.is_resigning;
        let has_more = decides && self.queue().has_news();
        let asks = self.evaluations.has_next(cluster.config.evaluations_at_a_time);
        if has_more || asks || !self.reads.is_empty() || self.shadow.has_moved() || !self.is_settled() {
            return Some(now.mono_ms);
        }
        let later = [
            self.foreign_charges.next_due_ms(),
            self.pod_growth.next_due_ms(),
            self.machine_growth.next_due_ms(),
            self.pauses.next_due_ms(now, self.leading),
            self.queue().next_due_ms().filter(|_| decides),
            self.targets.next_due().map(|second| now.at_second(second)),
            self.evaluations.next_due_ms(),
        ];
        later.into_iter().flatten().min()
    }

    pub fn pass_time(&mut self, cluster: &Cluster, now: Moment) {
        self.look_at_evaluations(cluster, now);
        self.keep_what_is_doubted(cluster, now);
        self.foreign_charges.pass_time(now);
        self.pod_growth.pass_time(now);
        self.machine_growth.pass_time(now);
    }

    /// What is summed in a quota whose sums are complete.
    pub fn complete<'c>(&self, cluster: &'c Cluster, id: QuotaId) -> Option<&'c CompiledQuota> {
        let quota = cluster.quotas.get(id).filter(|_| !self.reclassification.is_quota_paused(id))?;
        quota.compiled.as_deref().ok()
    }

    fn end_claim(&mut self, id: PodId, record: &PodRecord) {
        self.pauses.leave(record);
        self.evaluations.note_moved(id, record.namespace);
        self.shadow.note_moved(id);
        if let Some(quotas) = self.stages.end_claim(id, record) {
            self.orders.restate_all(&quotas);
        }
    }

    fn revert_claim(&mut self, id: PodId, record: &PodRecord) {
        self.pauses.leave(record);
        self.evaluations.note_moved(id, record.namespace);
        self.shadow.note_moved(id);
        if let Some(quotas) = self.stages.revert_claim(id, record) {
            self.orders.restate_all(&quotas);
        }
    }
}
