//! Everything the gate knows and has decided; changed by events only, without any I/O.
//!
//! Watch events go in (`apply_…`, `delete_…`), actions come out ([`State::plan`]), and what became of them goes in again
//! ([`State::on_outcome`]). The state is made of [parts](super::parts) that each keep their own invariant and know no other
//! part; the files of this folder compose them, one concern each.

mod admissions;
mod audit;
mod classify;
mod cluster_quotas;
mod cluster_views;
mod contests;
mod decisions;
mod enforcement;
mod evaluations;
mod events;
mod explain;
mod foreign_charges;
mod growth;
mod held_targets;
mod machine_growth;
mod machines;
mod managed;
mod namespaces;
mod owners;
mod pauses;
mod platform;
mod pods;
mod quota_checks;
mod quotas;
mod reclassification;
mod releases;
mod status_writes;
#[cfg(test)]
mod testing;

pub use audit::{AuditCursor, AuditFinding};
pub use cluster_views::ClusterView;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::{Charge, ChargeRules, CompiledQuota, PodId, QuotaId, ReleaseQueue, Uid};
use sluice_index::{Namespaces, Pods, Quotas, Targeting};

use super::action::{Action, Outcome, QuotaRef};
use super::cluster::Cluster;
use super::cluster::machines::Owner;
use super::config::{GateConfig, Moment};
use super::parts::admissions::{Admissions, Wanted};
use super::parts::confirmations::Confirmations;
use super::parts::contests::Contests;
use super::parts::evaluations::Evaluations;
use super::parts::events::Events;
use super::parts::foreign_charges::ForeignCharges;
use super::parts::growth::Growth;
use super::parts::held_targets::HeldTargets;
use super::parts::pauses::Pauses;
use super::parts::pod_stages::{Held, PodStages};
use super::parts::quota_checks::{Listed, QuotaChecks};
use super::parts::quota_sets::QuotaSets;
use super::parts::reclassification::Reclassification;
use super::parts::releases::Releases;
use super::parts::repricing::Repricing;
use super::parts::stamp::Stamp;
use super::parts::status_writes::StatusWrites;
use super::stats::Stats;

/// The state of the gate.
#[derive(Debug)]
pub struct State {
    leading: bool,
    /// It leads as soon as all VMs are appraised.
    to_lead: bool,
    cluster: Cluster,
    evaluations: Evaluations,
    // What is decided: the claims of pods' stages and of admitted updates are what the queue's ledgers sum up.
    stages: PodStages,
    quota_sets: QuotaSets,
    admissions: Admissions,
    pod_growth: Growth<PodId, Wanted>,
    machine_growth: Growth<Owner, Arc<Charge>>,
    pauses: Pauses,
    reclassification: Reclassification,
    repricing: Repricing,
    foreign_charges: ForeignCharges,
    // What is to be done, in flight or to be repeated.
    writes: StatusWrites,
    confirmations: Confirmations,
    releases: Releases,
    checks: QuotaChecks,
    contests: Contests,
    targets: HeldTargets,
    events: Events,
    /// What happened, for metrics.
    pub stats: Stats,
}

impl State {
    /// A state that knows nothing yet.
    #[must_use]
    pub fn new(config: GateConfig, targeting: Targeting) -> Self {
        let releases = Releases::new(config.concurrent_releases);
        Self {
            leading: false,
            to_lead: false,
            cluster: Cluster::new(config, targeting),
            evaluations: Evaluations::default(),
            stages: PodStages::default(),
            quota_sets: QuotaSets::default(),
            admissions: Admissions::default(),
            pod_growth: Growth::default(),
            machine_growth: Growth::default(),
            pauses: Pauses::default(),
            reclassification: Reclassification::default(),
            repricing: Repricing::default(),
            foreign_charges: ForeignCharges::default(),
            writes: StatusWrites::new(Stamp::random()),
            confirmations: Confirmations::default(),
            releases,
            checks: QuotaChecks::default(),
            contests: Contests::default(),
            targets: HeldTargets::default(),
            events: Events::default(),
            stats: Stats::default(),
        }
    }

    /// From now on decisions are made, or as soon as all VMs are appraised. What quotas have recorded above what the pods
    /// take may be releases of a predecessor that have not arrived yet: their room is kept for a while. Until a VM is
    /// appraised each of its pods takes its own, perhaps more together than is recorded for the VM, and less would be kept.
    pub fn lead(&mut self, now: Moment) {
        self.to_lead = !self.repricing.are_appraised();
        if !self.to_lead {
            self.begin_leading(now);
        }
    }

    fn begin_leading(&mut self, now: Moment) {
        self.leading = true;
        self.doubt(now);
        let ids: Vec<QuotaId> = self.cluster.quotas.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.reserve_in_flight(id, now);
            self.stages.queue_mut().wake(id);
            self.writes.mark(id);
        }
        let pods: Vec<PodId> = self.cluster.pods.iter().map(|(id, _)| id).collect();
        self.releases.clear_queue();
        for id in &pods {
            if self.stages.may_be_released(*id) {
                self.enqueue_release(*id);
            }
        }
        for id in pods {
            self.await_lists(id);
        }
        let unreadable =
            self.cluster.pods.iter().filter(|(_, record)| record.unreadable.is_some()).map(|(id, _)| id);
        for id in self.stages.held().chain(unreadable) {
            self.events.news(id, now);
        }
        self.announce_pauses();
        // KubeVirt may have been seen after its pods.
        for id in self.stages.held().collect::<Vec<_>>() {
            self.hold_target(id);
        }
    }

    /// Decides, and says what is to be done now. Does nothing but look until [`State::lead`] was called.
    pub fn plan(&mut self, now: Moment) -> Vec<Action> {
        self.pass_time(now);
        self.go_on_reclassifying(now);
        self.go_on_appraising(now);
        if self.to_lead {
            self.lead(now);
        }
        if !self.leading {
            self.releases.clear_queue();
            return self
                .plan_evaluations()
                .into_iter()
                .map(|question| Action::Evaluate(Box::new(question)))
                .collect();
        }
        if self.repricing.are_appraised() {
            self.decide(now);
        }
        let mut actions = Vec::new();
        actions.extend(self.plan_records(now).into_iter().map(|record| Action::Record(Box::new(record))));
        actions.extend(self.plan_releases().into_iter().map(Action::Release));
        actions.extend(self.plan_checks(now));
        actions.extend(self.plan_catching_up());
        actions.extend(self.plan_reads(now).into_iter().map(Action::Read));
        actions.extend(self.plan_machine_reads(now).into_iter().map(Action::ReadMachine));
        let questions = self.plan_evaluations();
        actions.extend(questions.into_iter().map(|question| Action::Evaluate(Box::new(question))));
        let answers = self.admissions.take_answers();
        actions.extend(answers.into_iter().map(|(ticket, judgement)| Action::Answer(ticket, judgement)));
        actions.extend(self.plan_events(now).into_iter().map(Action::WriteEvent));
        actions
    }

    /// Takes note of what became of an action.
    pub fn on_outcome(&mut self, outcome: Outcome, now: Moment) {
        match outcome {
            Outcome::Recorded(quota, uid, answer) => self.on_recorded(quota, &uid, answer, now),
            Outcome::Released(pod, uid, answer) => self.on_released(pod, &uid, answer, now),
            Outcome::Listed(namespaces, answer) => self.on_listed(&namespaces, answer, now),
            Outcome::ClusterQuotasCaughtUp => self.on_checked(Listed::Cluster),
            Outcome::TargetsListed => self.on_checked(Listed::Targets),
            Outcome::Read(pod, uid, answer) => self.on_read(pod, &uid, answer, now),
            Outcome::MachineRead(machine, answer) => self.on_machine_read(&machine, *answer, now),
            Outcome::EventWritten(event, is_written) => self.on_event_written(&event, is_written, now),
            Outcome::CaughtUp => self.on_caught_up(now),
            Outcome::Evaluated { pod, uid, hash, serial, answer } => {
                self.on_evaluated((pod, &uid), (hash, serial), answer, now);
            }
        }
    }

    /// When [`State::plan`] has something to do even if nothing is seen: milliseconds from `now`.
    #[must_use]
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        let has_more = self.writes.has_next() || self.releases.has_next() || self.stages.queue().has_news();
        let asks = self.evaluations.has_next(self.cluster.config.evaluations_at_a_time);
        if self.leading && has_more
            || asks
            || !self.reclassification.is_idle()
            || !self.repricing.are_appraised()
        {
            return Some(0);
        }
        let in_second = |at: i64| {
            let later_s = u64::try_from(at.saturating_sub(now.unix_s())).unwrap_or(0);
            now.mono_ms.saturating_add(later_s.saturating_mul(1000))
        };
        let later = [
            self.writes.next_due_ms(),
            self.foreign_charges.next_due_ms(),
            self.releases.next_due_ms(),
            self.pod_growth.next_due_ms(),
            self.machine_growth.next_due_ms(),
            self.checks.next_due_ms(),
            self.pauses.next_due_ms(now, self.leading),
            self.events.next_due_ms(now).filter(|_| self.leading),
            self.stages.queue().next_due_ms().filter(|_| self.leading),
            self.cluster.pods.next_overdue().map(in_second),
            self.targets.next_due().map(in_second),
            self.evaluations.next_due_ms(),
        ];
        later.into_iter().flatten().min().map(|at| at.saturating_sub(now.mono_ms))
    }

    fn pass_time(&mut self, now: Moment) {
        for id in self.cluster.pods.take_overdue(now.unix_s()) {
            let Some(record) = self.cluster.pods.get(id).cloned() else { continue };
            self.end_claim(id, &record);
            self.classify(id, now);
            self.appraise_owner_of(id);
            self.look_beside(id, &record);
            self.on_launcher_changed(&record);
        }
        self.look_at_evaluations(now);
        self.keep_what_is_doubted(now);
        self.foreign_charges.pass_time(now);
        self.writes.pass_time(now);
        while let Some(id) = self.releases.pop_due(now) {
            self.retry_release(id, now);
        }
        self.pod_growth.pass_time(now);
        self.machine_growth.pass_time(now);
        self.checks.pass_time(now);
        self.end_pauses(now);
        self.look_at_due_targets(now);
    }

    /// From now on pods are read by these rules; those that are known have to be seen again.
    pub fn charge_by(&mut self, rules: ChargeRules) {
        self.cluster.config.rules = rules;
    }

    /// Whether this process decides.
    pub(super) fn is_leading(&self) -> bool {
        self.leading
    }

    /// Whether everything that was started is answered and done.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.releases.is_idle()
            && self.confirmations.is_idle()
            && self.checks.is_idle()
            && self.reclassification.is_idle()
            && self.repricing.are_appraised()
            && self.writes.is_idle()
            && self.evaluations.is_idle()
    }

    /// How many pods are held, by whatever.
    #[must_use]
    pub fn held(&self) -> usize {
        self.stages.held().len()
    }

    /// How many pods are held, by why.
    pub(super) fn held_by_reason(&self) -> [(&'static str, usize); Held::ALL.len()] {
        Held::ALL.map(|(word, why)| (word, self.stages.held_for(why)))
    }

    /// What is watched.
    pub(super) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How people and requests name a quota.
    pub(super) fn quota_ref(&self, id: QuotaId) -> Option<QuotaRef> {
        self.cluster.quota_ref(id)
    }

    /// All pods, namespaces and quotas.
    #[must_use]
    pub fn index(&self) -> (&Pods, &Namespaces, &Quotas) {
        (&self.cluster.pods, &self.cluster.namespaces, &self.cluster.quotas)
    }

    /// All ledgers.
    #[must_use]
    pub fn queue(&self) -> &ReleaseQueue {
        self.stages.queue()
    }

    /// What is summed in a quota whose sums are complete.
    pub(super) fn complete(&self, id: QuotaId) -> Option<&CompiledQuota> {
        let quota = self.cluster.quotas.get(id).filter(|_| !self.reclassification.is_quota_paused(id))?;
        quota.compiled.as_deref().ok()
    }

    fn end_claim(&mut self, id: PodId, record: &sluice_index::PodRecord) {
        self.pauses.leave(record);
        if let Some(quotas) = self.stages.end_claim(id, record) {
            self.writes.mark_all(&quotas);
        }
    }

    fn revert_claim(&mut self, id: PodId, record: &sluice_index::PodRecord) {
        self.pauses.leave(record);
        if let Some(quotas) = self.stages.revert_claim(id, record) {
            self.writes.mark_all(&quotas);
        }
    }
}

/// The identity that an object has at the API server.
fn uid_of(metadata: &ObjectMeta) -> Uid {
    Uid::parse(metadata.uid.as_deref().unwrap_or_default())
}
