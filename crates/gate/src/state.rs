//! Everything the gate knows and has decided; changed by events only, without any I/O.
//!
//! Watch events go in (`apply_…`, `delete_…`), actions come out ([`State::plan`]), and what became of them goes in again
//! ([`State::on_outcome`]).
//!
//! ```text
//!  events, answers ──▶ Cluster ──▶ Accounts ── orders ─┬─▶ Recorder ──▶ status writes, lists
//!                                     ▲                ├─▶ Releaser ──▶ releases
//!                                     │                └─▶ Reporter ──▶ events, counts
//!                                     └── what came of them ─┘
//! ```
//! Each room keeps its fields to itself. The files of this folder say what each kind of event and of answer means for the
//! rooms; decisions are made in [`accounts`](super::accounts) alone.

mod admissions;
mod audit;
mod cluster_quotas;
mod cluster_views;
mod enforcement;
mod evaluations;
mod explain;
mod foreign_charges;
mod growth;
mod lists;
mod machine_growth;
mod machines;
mod managed;
mod migrations;
mod namespaces;
mod overwrites;
mod pauses;
mod pods;
mod quotas;
mod recorded;
mod releases;
mod shadow;
#[cfg(test)]
mod testing;

pub use audit::{AuditCursor, AuditFinding};
pub use cluster_views::ClusterView;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::{ChargeRules, QuotaId, ReleaseQueue, Uid};
use sluice_index::{Namespaces, Pods, Quotas, Targeting};

use super::accounts::Accounts;
use super::accounts::parts::pod_stages::Held;
use super::action::{Action, Outcome, QuotaRef};
use super::cluster::Cluster;
use super::config::{GateConfig, Moment};
use super::orders::{Listed, Order};
use super::recorder::Recorder;
use super::recorder::stamp::Stamp;
use super::releaser::Releaser;
use super::reporter::Reporter;
use super::stats::Stats;
use super::view::View;

/// The state of the gate.
#[derive(Debug)]
pub struct State {
    /// This process leads as soon as all VMs are appraised.
    to_lead: bool,
    /// The predecessor left nothing under way.
    is_handed_over: bool,
    /// Quotas of which others have recorded charges since this process is to lead; `None` before.
    charged_meanwhile: Option<BTreeSet<QuotaId>>,
    cluster: Cluster,
    accounts: Accounts,
    recorder: Recorder,
    releaser: Releaser,
    reporter: Reporter,
}

impl State {
    /// A state that knows nothing yet.
    #[must_use]
    pub fn new(config: GateConfig, targeting: Targeting) -> Self {
        let releaser = Releaser::new(config.concurrent_releases);
        Self {
            to_lead: false,
            is_handed_over: false,
            charged_meanwhile: None,
            cluster: Cluster::new(config, targeting),
            accounts: Accounts::default(),
            recorder: Recorder::new(Stamp::random()),
            releaser,
            reporter: Reporter::default(),
        }
    }

    /// This process holds the lease, and leads once it has caught up. A leader that has not noticed yet may go on recording
    /// charges, on account of pods whose end is not seen here.
    pub fn expect_to_lead(&mut self) {
        self.charged_meanwhile.get_or_insert_default();
    }

    /// From now on decisions are made, or as soon as all VMs are appraised. What quotas have recorded above what the pods
    /// take may be releases of a predecessor that have not arrived yet: their room is kept for a while. Until a VM is
    /// appraised each of its pods takes its own, perhaps more together than is recorded for the VM, and less would be kept.
    pub fn lead(&mut self, now: Moment) {
        self.to_lead = !self.accounts.are_machines_appraised();
        if !self.to_lead {
            self.begin_leading(now);
        }
    }

    /// As [`Self::lead`], where the predecessor [had nothing under way](Self::has_nothing_under_way) when it gave the lease
    /// back, and everything that there was then is seen: what quotas have recorded above what pods take is of pods that have
    /// ended.
    pub fn lead_after_handover(&mut self, now: Moment) {
        self.is_handed_over = true;
        self.lead(now);
    }

    /// From now on nothing is decided or admitted any more; what is decided is brought to its end.
    pub fn resign(&mut self) {
        self.accounts.resign();
    }

    /// Whether this process leads, and nothing that it or a leader before it has asked for can be done any more without
    /// being seen: no release without an answer, and no update of a pod or VM that was admitted.
    #[must_use]
    pub fn has_nothing_under_way(&self) -> bool {
        self.accounts.has_nothing_under_way()
    }

    fn begin_leading(&mut self, now: Moment) {
        for id in self.accounts.begin_leading(&self.cluster, self.is_handed_over, now) {
            self.keep_recorded(id, now);
        }
        for id in self.charged_meanwhile.take().unwrap_or_default() {
            self.on_foreign_charge(id, now);
        }
        self.releaser.clear_queue();
        self.accounts.take_stock(&self.cluster, now);
        self.carry_out();
    }

    /// What the accounts want done is done, or lined up.
    fn carry_out(&mut self) {
        for order in self.accounts.take_orders() {
            match order {
                Order::Restate(quota) => self.recorder.restate(quota),
                Order::RestateAbout(namespace) => self.restate_quotas_about(namespace),
                Order::Record(quota, decision) => self.recorder.record(quota, decision),
                Order::Await(listed, decision) => self.recorder.await_list(listed, decision),
                Order::List(namespace) => self.recorder.list(namespace),
                Order::Close(quota) => self.recorder.close(quota),
                Order::KeepRecorded(quota, now) => self.keep_recorded(quota, now),
                Order::Go(namespace, pod) => self.releaser.enqueue(namespace, pod),
                Order::EndRetries(pod) => self.releaser.end_retries(pod),
                Order::Tell(news) => self.reporter.hear(&self.cluster, news),
            }
        }
    }

    /// Decides, and says what is to be done now. Does nothing but look until [`State::lead`] was called.
    pub fn plan(&mut self, now: Moment) -> Vec<Action> {
        self.pass_time(now);
        self.accounts.go_on_reclassifying(&self.cluster, now);
        self.accounts.go_on_appraising(&self.cluster, now);
        self.accounts.count_unevaluated(&self.cluster);
        self.accounts.count_shadows(&self.cluster);
        self.carry_out();
        if self.to_lead {
            self.lead(now);
        }
        if !self.accounts.is_leading() {
            self.releaser.clear_queue();
            return self.plan_evaluations();
        }
        if self.accounts.are_machines_appraised() {
            self.accounts.decide(&self.cluster, now);
            self.carry_out();
        }
        let mut actions = Vec::new();
        for (record, is_news) in self.recorder.plan(&self.cluster, &self.accounts, now) {
            if is_news {
                self.reporter.tell_not_enforced(&self.cluster, &record);
            }
            actions.push(Action::Record(Box::new(record)));
        }
        let releases = self.releaser.plan(|id| self.accounts.send(&self.cluster, id));
        actions.extend(releases.into_iter().map(Action::Release));
        actions.extend(self.recorder.plan_lists(&self.cluster, &self.accounts, now));
        actions.extend(self.accounts.begin_catching_up().then_some(Action::CatchUp));
        actions.extend(self.accounts.plan_reads(&self.cluster, now).into_iter().map(Action::Read));
        actions.extend(
            self.accounts.plan_machine_reads(&self.cluster, now).into_iter().map(Action::ReadMachine),
        );
        actions.extend(self.plan_evaluations());
        let answers = self.accounts.take_answers();
        actions.extend(answers.into_iter().map(|(ticket, judgement)| Action::Answer(ticket, judgement)));
        let view = View { cluster: &self.cluster, accounts: &self.accounts, releaser: &self.releaser };
        actions.extend(self.reporter.plan(view, now).into_iter().map(Action::WriteEvent));
        actions
    }

    fn plan_evaluations(&mut self) -> Vec<Action> {
        let reads = self.accounts.take_reads().into_iter().map(Action::ReadRound);
        let questions = self.accounts.plan_evaluations(&self.cluster).into_iter();
        reads.chain(questions.map(|question| Action::Evaluate(Box::new(question)))).collect()
    }

    /// Takes note of what became of an action.
    pub fn on_outcome(&mut self, outcome: Outcome, now: Moment) {
        self.settle(outcome, now);
        self.carry_out();
    }

    fn settle(&mut self, outcome: Outcome, now: Moment) {
        match outcome {
            Outcome::Recorded(quota, uid, answer) => self.on_recorded(quota, &uid, answer, now),
            Outcome::Released(pod, uid, answer) => self.on_released(pod, &uid, answer, now),
            Outcome::Listed(namespaces, answer) => self.on_listed(&namespaces, answer, now),
            Outcome::ClusterQuotasCaughtUp => self.on_checked(Listed::Cluster),
            Outcome::TargetsListed => self.on_checked(Listed::Targets),
            Outcome::Read(pod, uid, answer) => self.on_read(pod, &uid, answer, now),
            Outcome::MachineRead(machine, answer) => self.on_machine_read(&machine, *answer, now),
            Outcome::EventWritten(event, is_written) => {
                self.reporter.on_event_written(&self.cluster, &event, is_written, now);
            }
            Outcome::CaughtUp => self.accounts.on_caught_up(&self.cluster, now),
            Outcome::RoundRead(namespace, number, read) => {
                self.accounts.on_round_read(&self.cluster, namespace, number, read, now);
            }
            Outcome::Evaluated { pod, uid, hash, serial, answer } => {
                self.accounts.on_evaluated(&self.cluster, (pod, &uid), (hash, serial), answer, now);
            }
        }
    }

    /// When [`State::plan`] has something to do even if nothing is seen: milliseconds from `now`.
    #[must_use]
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        let is_leading = self.is_leading();
        let has_more = is_leading && (self.recorder.has_next() || self.releaser.has_next());
        let later = [
            has_more.then_some(now.mono_ms),
            self.accounts.next_due_ms(&self.cluster, now),
            self.recorder.next_due_ms(),
            self.releaser.next_due_ms(),
            self.reporter.next_due_ms(now).filter(|_| is_leading),
            self.cluster.pods.next_overdue().map(|second| now.at_second(second)),
        ];
        later.into_iter().flatten().min().map(|at| at.saturating_sub(now.mono_ms))
    }

    fn pass_time(&mut self, now: Moment) {
        for id in self.cluster.pods.take_overdue(now.unix_s()) {
            self.accounts.on_pod_over(&self.cluster, id, now);
        }
        self.accounts.pass_time(&self.cluster, now);
        self.recorder.pass_time(now);
        while let Some(id) = self.releaser.pop_due(now) {
            self.accounts.retry_release(&self.cluster, id, now);
        }
        self.accounts.end_pauses(&self.cluster, now);
        self.accounts.look_at_due_targets(&self.cluster, now);
        self.carry_out();
    }

    /// From now on pods are read by these rules; those that are known have to be seen again.
    pub fn charge_by(&mut self, rules: ChargeRules) {
        self.cluster.config.rules = rules;
        self.accounts.read_pods_anew(true);
    }

    /// All pods were read by the rules of now.
    pub(super) fn is_charged_by(&mut self) {
        self.accounts.read_pods_anew(false);
    }

    /// What has happened since this was asked last.
    pub(super) fn take_stats(&mut self) -> Stats {
        self.reporter.take_stats()
    }

    /// The configuration has an effect that its author should know of.
    pub(super) fn announce_configuration(&mut self, name: &str, uid: Uid, message: String) {
        self.reporter.tell_configuration(name, uid, message);
    }

    /// Whether this process decides.
    pub(super) fn is_leading(&self) -> bool {
        self.accounts.is_leading()
    }

    /// Whether everything that was started is answered and done.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.accounts.is_quiet() && self.recorder.is_quiet()
    }

    /// How many pods are held, by whatever.
    #[must_use]
    pub fn held(&self) -> usize {
        self.accounts.held().len()
    }

    /// How many pods are held, by why.
    pub(super) fn held_by_reason(&self) -> [(&'static str, usize); Held::ALL.len()] {
        Held::ALL.map(|(word, why)| (word, self.accounts.held_for(why)))
    }

    pub(super) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How people and requests name a quota.
    pub(super) fn quota_ref(&self, id: QuotaId) -> Option<QuotaRef> {
        self.cluster.quota_ref(id)
    }

    #[must_use]
    pub fn index(&self) -> (&Pods, &Namespaces, &Quotas) {
        (&self.cluster.pods, &self.cluster.namespaces, &self.cluster.quotas)
    }

    /// All ledgers.
    #[must_use]
    pub fn queue(&self) -> &ReleaseQueue {
        self.accounts.queue()
    }
}

/// The identity that an object has at the API server.
fn uid_of(metadata: &ObjectMeta) -> Uid {
    Uid::parse(metadata.uid.as_deref().unwrap_or_default())
}
