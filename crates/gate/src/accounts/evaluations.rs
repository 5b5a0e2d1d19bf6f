//! Asks evaluators about pods, and charges what they answer.
//!
//! A pod that waits is held until there is an answer about just what is going to be released. A pod that runs goes on being
//! charged as it was last answered; while there is no answer of the evaluators of now, the sums of its namespace are not
//! complete, and that is [paused](super::reclassification). A failure ends such a pause and holds who waits.

use std::sync::Arc;

use sluice_engine::{Charge, PodId, QuotaId, Uid};
use sluice_index::{Gates, NamespaceId, PodRecord};

use super::Accounts;
use crate::accounts::parts::evaluations::lanes::AtOnce;
use crate::accounts::parts::evaluations::{Answered, Evaluation, Evaluations};
use crate::action::Release;
use crate::cluster::Cluster;
use crate::cluster::machines::Owner;
use crate::config::Moment;
use crate::evaluators::{Content, Evaluate, EvaluatorsConfig, Failed, Said};
use crate::orders::{News, Order};
use crate::shadow::RuleFigures;
use crate::stage::{Stage, Stuck};

impl Accounts {
    /// Whether there are evaluators.
    pub const fn asks_evaluators(&self) -> bool {
        self.evaluations.is_on()
    }

    /// From now on these evaluators are asked, or none. Returns the number of the configuration.
    pub fn follow_evaluators(
        &mut self,
        cluster: &Cluster,
        config: Option<Arc<EvaluatorsConfig>>,
        now: Moment,
    ) -> u32 {
        let next = self.evaluations.take_next(config.as_ref());
        let revision = self.evaluations.configure(config);
        if let Some(next) = next {
            let is_as_read =
                |id, read| cluster.pods.get(id).is_some_and(|it| Evaluations::is_as_read(read, it.version));
            self.evaluations.adopt(next, is_as_read);
        }
        let with_quotas = cluster.namespaces.iter().filter(|(_, known)| !known.quotas().is_empty());
        let concerned: Vec<NamespaceId> = with_quotas.map(|(id, _)| id).collect();
        let owners: Vec<Owner> = self.stages.owners().members().map(|(_, owner)| (**owner).clone()).collect();
        self.repricing.appraise_later(owners);
        self.reclassify_each(cluster, concerned, now);
        revision
    }

    /// These evaluators do not work, a bit for each.
    pub fn set_evaluators_broken(&mut self, cluster: &Cluster, broken: u16, now: Moment) {
        for namespace in self.evaluations.set_broken(broken, now) {
            if !self.reclassification.is_paused(namespace) {
                self.reclassify_later(cluster, namespace, Vec::new());
            }
        }
    }

    /// The evaluators take so many questions at once, by their places; 0: that is not known, or no other process is asked.
    pub const fn limit_evaluators(&mut self, at_once: AtOnce) {
        self.evaluations.limit(at_once);
    }

    /// How many pods have no answer: those that wait for one, and those that run. `None`: there are no evaluators.
    pub fn without_answer(&self) -> Option<(usize, usize)> {
        self.evaluations.is_on().then(|| self.evaluations.without_answer())
    }

    /// How many pods each rule matches and holds.
    pub fn rule_figures(&self) -> Vec<(Arc<str>, RuleFigures)> {
        self.evaluations.rule_figures()
    }

    /// Whether the pod with this content is asked about.
    pub fn is_asked(&self, id: PodId, hash: u64) -> bool {
        self.evaluations.is_open(id, hash)
    }

    /// A new version of the pod was seen, perhaps with its content. Returns whether that is other content, or is not known.
    pub(super) fn see_content(&mut self, id: PodId, content: Option<Content>, is_news: bool) -> bool {
        self.evaluations.is_on() && (content.is_some() || is_news) && self.evaluations.see(id, content)
    }

    /// The pod has other content, and nothing else of it has changed.
    pub(super) fn on_content_changed(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        let Some(record) = cluster.pods.get(id).cloned() else { return };
        let is_decided_by = matches!(
            self.stages.get(id),
            Stage::Waiting(_) | Stage::Assumed { .. } | Stage::Stuck(Stuck::Evaluating)
        );
        if record.gates == Gates::Ours && is_decided_by {
            self.reconsider_pod(cluster, id, now);
        }
    }

    /// Asks about the pod, or not any more.
    pub(super) fn ask_about(&mut self, cluster: &Cluster, id: PodId, now: Moment) {
        if !self.evaluations.is_on() {
            return;
        }
        let Some(record) = cluster.pods.get(id).cloned() else { return };
        let selected = self.asked_of(cluster, id, &record);
        if selected != 0 {
            let is_waiting = record.gates != Gates::None;
            self.evaluations.ask(id, (record.namespace, selected), is_waiting, now);
            if let Some(failed) = self.evaluations.take_refused(id, selected)
                && let Some((hash, serial)) = self.evaluations.begin(id, record.namespace, selected)
            {
                self.evaluations.answered(serial, hash, Err(failed), now);
            }
            let is_pending = self.evaluations.is_pending(record.namespace);
            if is_pending && !self.reclassification.is_paused(record.namespace) {
                self.reclassify_later(cluster, record.namespace, Vec::new());
            }
            return;
        }
        self.evaluations.leave(id, record.namespace);
        if self.evaluations.is_read(id)
            && self.selected_of(cluster, id, &record) == 0
            && self.evaluations.unprice(id)
        {
            // What was said of it when one selected it counts no more, for its VM neither.
            let is_of_machine = cluster.machines.are_charged() && cluster.is_launcher(&record);
            let owner = if is_of_machine { cluster.claimed_owner(&record) } else { None };
            self.repricing.appraise_later(owner);
        }
        if record.gates == Gates::None && self.is_further_launcher(cluster, id, &record) {
            // What the VM is charged stays when the others go.
            for other in self.launchers_beside(cluster, id, &record) {
                self.evaluations.inherit(id, other);
            }
        }
    }

    /// The pod goes, or is over: who it was asked about in place of has to be asked about itself.
    pub(super) fn look_beside(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord) {
        if self.evaluations.is_on() && record.ownership().is_some() {
            for other in self.launchers_beside(cluster, id, record) {
                self.evaluations.look_at(other);
            }
        }
    }

    /// Counts a pod that is counted natively because evaluators do not work.
    pub(super) fn note_native(&mut self, cluster: &Cluster, id: PodId) {
        let Some(record) = cluster.pods.get(id) else { return };
        let is_native = self.is_counted_natively(id, self.asked_of(cluster, id, record));
        if is_native && self.evaluations.note_native(id) {
            self.orders.tell(News::CountedNatively);
        }
    }

    /// The questions to ask now. Every process asks, whether it leads or not: so it knows the answers when it does.
    pub fn plan_evaluations(&mut self, cluster: &Cluster) -> Vec<Evaluate> {
        let mut questions = Vec::new();
        // Others may be asked about all pods of a namespace by now: those are looked at again, some at a time.
        let mut in_vain = 0;
        while in_vain < cluster.config.reclassified_pods.max(1)
            && let Some(id) = self.evaluations.next(cluster.config.evaluations_at_a_time)
        {
            let Some(record) = cluster.pods.get(id).cloned() else { continue };
            if !self.is_asked_about(cluster, id, &record) {
                self.evaluations.close(id, record.namespace);
                self.evaluations.look_at(id);
                in_vain += 1;
                continue;
            }
            match self.question_about(cluster, id, record) {
                Some(question) => questions.push(question),
                None => in_vain += 1,
            }
        }
        questions
    }

    pub fn question_about(&mut self, cluster: &Cluster, id: PodId, record: PodRecord) -> Option<Evaluate> {
        let selected = self.asked_of(cluster, id, &record);
        let config = self.evaluations.shared_config().filter(|_| selected != 0)?;
        let Release { namespace, name, uid, version, .. } = cluster.address(id)?;
        let (hash, serial) = self.evaluations.begin(id, record.namespace, selected)?;
        let round = match self.evaluations.is_in_rounds(selected) {
            true => self.evaluations.rounds().of(record.namespace),
            false => None,
        };
        let native = native_of(cluster, &record);
        let is_waiting = record.gates != Gates::None;
        let counted = record.charge;
        Some(Evaluate {
            pod: id,
            namespace,
            name,
            uid,
            version,
            hash,
            serial,
            is_waiting,
            native,
            counted,
            selected,
            round,
            config,
        })
    }

    pub fn on_evaluated(
        &mut self,
        cluster: &Cluster,
        (id, uid): (PodId, &Uid),
        (hash, serial): (u64, u64),
        answer: Result<Said, Failed>,
        now: Moment,
    ) {
        let answered = self.evaluations.answered(serial, hash, answer, now);
        let Some(record) = cluster.pods.get(id).filter(|record| record.uid == *uid).cloned() else {
            return;
        };
        match answered {
            Answered::Dropped => {}
            Answered::Priced => self.on_priced(cluster, id, &record, now),
            Answered::Failed => {
                self.reclassify_unless_going(cluster, id, now);
                if self.leading && self.evaluations.is_told(id) {
                    self.orders.tell(News::Held(id, now));
                }
            }
        }
    }

    fn on_priced(&mut self, cluster: &Cluster, id: PodId, record: &PodRecord, now: Moment) {
        self.shadow.note_moved(id);
        if cluster.machines.are_charged() && cluster.is_launcher(record) {
            let owner = cluster.claimed_owner(record);
            if let Some(owner) = owner {
                self.appraise(cluster, &owner, now);
            }
        }
        let is_stuck = matches!(self.stages.get(id), Stage::Stuck(Stuck::Evaluating));
        if is_stuck || !self.is_stage_right(cluster, id) {
            self.reclassify(cluster, id, record.namespace, now);
        }
        // What was admitted is held until what it has become is charged.
        self.on_admitted_pod_seen(cluster, id);
    }

    pub(super) fn look_at_evaluations(&mut self, cluster: &Cluster, now: Moment) {
        if !self.evaluations.is_on() && !self.evaluations.has_next(0) {
            return;
        }
        for id in self.evaluations.take_looks() {
            self.ask_about(cluster, id, now);
            // Whether it is asked about may decide whether it goes.
            let is_decided_by =
                matches!(self.stages.get(id), Stage::Stuck(Stuck::Evaluating) | Stage::Waiting(_));
            if let Some(namespace) = cluster.pods.get(id).filter(|_| is_decided_by).map(|it| it.namespace) {
                self.reclassify(cluster, id, namespace, now);
            }
        }
        while let Some(namespace) = self.evaluations.next_overdue(now) {
            let pods = cluster.namespaces.get(namespace).map_or(&[][..], |known| known.pods());
            self.evaluations.note_overdue(namespace, pods);
        }
        let (told, is_other) = self.evaluations.pass_time(now);
        for id in told.into_iter().filter(|_| self.leading) {
            self.orders.tell(News::Held(id, now));
        }
        if is_other {
            let waiting: Vec<(PodId, NamespaceId)> = self.evaluations.open().collect();
            for (id, namespace) in waiting {
                if matches!(self.stages.get(id), Stage::Stuck(Stuck::Evaluating) | Stage::Waiting(_)) {
                    self.reclassify(cluster, id, namespace, now);
                }
            }
        }
        self.begin_rounds(cluster, now);
        for namespace in self.evaluations.take_ended() {
            self.reclassification.wake(namespace);
        }
    }

    /// Finds which quotas count pods that run without an answer.
    pub fn count_unevaluated(&mut self, cluster: &Cluster) {
        for id in self.evaluations.take_moved() {
            let is_overdue =
                cluster.pods.get(id).is_some_and(|it| self.evaluations.is_overdue(id, it.namespace));
            let counted = match self.stages.get(id) {
                Stage::Counted { quotas, .. } if is_overdue => Some(Arc::clone(quotas)),
                _ => None,
            };
            for quota in self.unevaluated.set(id, counted) {
                self.orders.give(Order::Restate(quota));
                self.stages.queue_mut().note_change(quota);
            }
        }
    }

    /// What the condition `Evaluated` of a quota says; `None`: there is an answer about each pod.
    pub fn unevaluated_told(&self, cluster: &Cluster, id: QuotaId) -> Option<String> {
        let pods = self.unevaluated.of(id)?;
        // A pod may be deleted since the last plan, and another pod may have its handle.
        let is_one = |it: &&PodId| {
            cluster.pods.get(**it).is_some_and(|record| self.evaluations.is_overdue(**it, record.namespace))
        };
        let name = pods.iter().find(is_one).and_then(|it| cluster.full_name(*it)).unwrap_or_default();
        let is_of_cluster = cluster.quotas.get(id)?.cluster().is_some();
        let name = name.split_once('/').filter(|_| !is_of_cluster).map_or(&*name, |(_, name)| name);
        let pods = match (pods.len(), name) {
            (1, "") => "1 pod that runs has".to_owned(),
            (count, "") => format!("{count} pods that run have"),
            (1, name) => format!("1 pod that runs ({name}) has"),
            (count, name) => format!("{count} pods that run ({name} is one) have"),
        };
        Some(format!(
            "{pods} no answer of evaluators: charged is what was answered last, or else what Kubernetes counts"
        ))
    }

    /// Whether pods that take of the quota have no answer: what is recorded of them is not known.
    pub(super) fn has_unanswered(&self, cluster: &Cluster, id: QuotaId) -> bool {
        self.evaluations.is_on()
            && cluster
                .namespaces_of(id)
                .into_iter()
                .any(|namespace| self.evaluations.has_unanswered(namespace))
    }

    /// What is told of a pod that is held because there is no answer about it.
    pub fn text_about_evaluation(&self, cluster: &Cluster, id: PodId) -> Option<String> {
        if !self.evaluations.is_told(id) {
            return None;
        }
        let selected = self.asked_of(cluster, id, cluster.pods.get(id)?);
        let names = self.evaluations.config()?.names(selected);
        Some(match self.evaluations.of(id, selected) {
            Evaluation::Failed(why) => {
                format!(
                    "held: {why}; evaluators ({names}) say what the pod takes, and no pod goes without an answer"
                )
            }
            _ => format!(
                "held: evaluators ({names}) have not answered yet what the pod takes; see that they run"
            ),
        })
    }
}

/// What is charged of the pod where no evaluator matches: nothing of a launcher, for its answer is charged beside its VM.
pub(super) fn native_of(cluster: &Cluster, record: &PodRecord) -> Arc<Charge> {
    let is_launcher = cluster.machines.are_charged() && cluster.is_launcher(record);
    if is_launcher { Arc::default() } else { Arc::clone(&record.charge) }
}
