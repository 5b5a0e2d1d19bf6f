//! Asks evaluators about pods, and charges what they answer.
//!
//! A pod that waits is held until there is an answer about just what is going to be released. A pod that runs goes on being
//! charged as it was last answered; while there is no answer of the evaluators of now, the sums of its namespace are not
//! complete, and that is [paused](super::reclassification). A failure ends such a pause and holds who waits.

use std::sync::Arc;

use sluice_engine::{Charge, PodId, QuotaId, Uid};
use sluice_index::{Gates, NamespaceId, PodRecord};

use super::State;
use crate::action::Release;
use crate::cluster::age;
use crate::cluster::machines::Owner;
use crate::config::Moment;
use crate::evaluators::{Content, Evaluate, EvaluatorsConfig, Failed, Price, Priced};
use crate::parts::evaluations::{Answered, Evaluation};
use crate::parts::owners::Payer;
use crate::stage::{Stage, Stuck};

impl State {
    /// From now on these evaluators are asked, or none. No pod of the namespaces that are concerned is released before each
    /// of those that run has an answer of theirs, or a while has passed. Returns the number of the configuration: pods have
    /// to be seen again, with [contents](Content) that were read by it.
    pub fn follow_evaluators(&mut self, config: Option<Arc<EvaluatorsConfig>>, now: Moment) -> u32 {
        let was_on = self.evaluations.is_on();
        let revision = self.evaluations.configure(config);
        if was_on != self.evaluations.is_on() {
            // Which keys nothing counts is another list.
            self.restate_quotas();
        }
        let ids: Vec<NamespaceId> = self.cluster.namespaces.iter().map(|(id, _)| id).collect();
        let is_concerned = |id: &NamespaceId| {
            let quotas = self.cluster.namespaces.get(*id).map(|namespace| namespace.quotas());
            quotas.is_some_and(|quotas| !quotas.is_empty())
        };
        let concerned: Vec<NamespaceId> = ids.into_iter().filter(is_concerned).collect();
        let owners: Vec<Owner> = self.stages.owners().members().map(|(_, owner)| (**owner).clone()).collect();
        self.repricing.appraise_later(owners);
        self.reclassify_each(concerned, now);
        revision
    }

    /// Evaluators work, or do not.
    pub fn set_evaluators_broken(&mut self, are_broken: bool, now: Moment) {
        for namespace in self.evaluations.set_broken(are_broken, now) {
            if !self.reclassification.is_paused(namespace) {
                self.reclassify_later(namespace, Vec::new());
            }
        }
    }

    /// How many pods have no answer: those that wait for one, and those that run. `None`: there are no evaluators.
    #[must_use]
    pub fn without_answer(&self) -> Option<(usize, usize)> {
        self.evaluations.is_on().then(|| self.evaluations.without_answer())
    }

    /// Whether the pod with this content waits for an answer about it.
    #[must_use]
    pub fn is_evaluated(&self, namespace: &str, name: &str, uid: &Uid, hash: u128) -> bool {
        let found = self
            .cluster
            .namespaces
            .id(namespace)
            .and_then(|namespace| self.cluster.pods.find(namespace, name));
        found.is_some_and(|id| {
            self.cluster.pods.get(id).is_some_and(|record| record.uid == *uid)
                && self.evaluations.is_open(id, hash)
        })
    }

    /// What is to be charged for the pod: the one place where that is found. `None`: evaluators have not said it.
    pub(super) fn price(&self, id: PodId, record: &PodRecord) -> Option<Payer> {
        if self.is_exempt(record) {
            return Some(Payer::pod(Arc::default()));
        }
        let owned = self.paying_owner(record);
        let native = || owned.clone().unwrap_or_else(|| Payer::pod(Arc::clone(&record.charge)));
        let selected = self.asked_of(id, record);
        if selected == 0 {
            return Some(native());
        }
        let priced = |price: &Price| match (price, &owned) {
            (Price::Charge(charge), None) => Payer::pod(Arc::clone(charge)),
            _ => native(),
        };
        if let Evaluation::Current(price) = self.evaluations.of(id, selected) {
            return Some(priced(price));
        }
        let is_waiting = record.gates != Gates::None;
        if let Some(last) = self.evaluations.last(id).filter(|_| !is_waiting) {
            return Some(priced(last));
        }
        if is_waiting && (self.has_pause(record.namespace) || self.evaluations.counts_natively(selected)) {
            return Some(native());
        }
        None
    }

    /// What is charged for the pod, as long as there is no answer about one that runs too.
    pub(super) fn payer(&self, id: PodId, record: &PodRecord) -> Payer {
        self.price(id, record)
            .or_else(|| self.paying_owner(record))
            .unwrap_or_else(|| Payer::pod(Arc::clone(&record.charge)))
    }

    /// Whether evaluators say what the pod is charged. Ended pods are charged as ever: they must not keep room because an
    /// evaluator does not work.
    pub(super) fn is_asked_about(&self, id: PodId, record: &PodRecord) -> bool {
        self.asked_of(id, record) != 0
    }

    /// The evaluators that say it, a bit for each.
    fn asked_of(&self, id: PodId, record: &PodRecord) -> u16 {
        if !self.evaluations.is_on() {
            return 0;
        }
        if record.gates == Gates::Foreign || record.is_over() || record.unreadable.is_some() {
            return 0;
        }
        let Some(namespace) = self.cluster.namespaces.get(record.namespace) else { return 0 };
        if namespace.quotas().is_empty()
            || self.cluster.namespaces.is_targeted(record.namespace) != Some(true)
        {
            return 0;
        }
        let selected = self.selected_of(id, record);
        if selected == 0 || self.is_exempt(record) || self.is_further_launcher(id, record) {
            return 0;
        }
        selected
    }

    /// The evaluators that select the pod and its namespace by their labels.
    fn selected_of(&self, id: PodId, record: &PodRecord) -> u16 {
        let Some(config) = self.evaluations.config() else { return 0 };
        let Some(namespace) = self.cluster.namespaces.get(record.namespace) else { return 0 };
        let by_labels = self.evaluations.selected_by(id, record.gates != Gates::None);
        if by_labels == 0 {
            return 0;
        }
        by_labels & config.selecting_namespace(|selector| namespace.is_selected(selector))
    }

    /// Whether the price was asked for by the evaluators of now.
    pub(super) fn is_of_now(&self, namespace: &str, priced: &Priced) -> bool {
        let config = self.evaluations.config();
        let in_namespace = config.map_or(0, |config| self.cluster.selecting_namespace(namespace, config));
        priced.revision == self.evaluations.revision() && priced.in_namespace == in_namespace
    }

    /// Whether the pod is one of a VM that is charged by what is answered about another one. So a migration waits for no
    /// evaluator.
    fn is_further_launcher(&self, id: PodId, record: &PodRecord) -> bool {
        self.launchers_beside(id, record).iter().any(|other| {
            let is_first = |known: &PodRecord| record.gates != Gates::None || age(known) < age(record);
            self.cluster.pods.get(*other).is_some_and(|known| known.gates == Gates::None && is_first(known))
        })
    }

    /// The other launchers of a VM that is charged, of one of its launchers.
    fn launchers_beside(&self, id: PodId, record: &PodRecord) -> Vec<PodId> {
        let Some(ownership) = record.ownership.as_ref().filter(|_| self.cluster.machines.are_charged())
        else {
            return Vec::new();
        };
        if !self.cluster.is_launcher(record) {
            return Vec::new();
        }
        let is_other = |other: &PodId| {
            let is_one = |known: &PodRecord| !known.is_over() && self.cluster.is_launcher(known);
            *other != id && self.cluster.pods.get(*other).is_some_and(is_one)
        };
        let pods = self.pods_of_machine(record.namespace, &ownership.machine).into_iter();
        pods.filter(is_other).collect()
    }

    /// The charge of a VM with what is answered about its launchers: the largest of that.
    pub(super) fn with_answers(&self, owner: &Owner, charge: Charge) -> Charge {
        let Some(namespace) =
            self.cluster.namespaces.id(&owner.namespace).filter(|_| self.evaluations.is_on())
        else {
            return charge;
        };
        let mut most = Charge::default();
        for id in self.pods_of_machine(namespace, &owner.uid) {
            let is_one = |record: &PodRecord| !record.is_over() && self.cluster.is_launcher(record);
            if let Some(Price::Charge(charge)) = self.evaluations.last(id)
                && self.cluster.pods.get(id).is_some_and(is_one)
            {
                most = most.max(charge);
            }
        }
        if most.is_empty() {
            return charge;
        }
        Charge::from_pairs(charge.iter().chain(most.iter()).cloned())
    }

    /// A new version of the pod was seen, perhaps with its content. Returns whether that is other content, or is not known.
    pub(super) fn see_content(&mut self, id: PodId, content: Option<Content>, is_news: bool) -> bool {
        self.evaluations.is_on() && (content.is_some() || is_news) && self.evaluations.see(id, content)
    }

    /// The pod has other content, and nothing else of it has changed.
    pub(super) fn on_content_changed(&mut self, id: PodId, now: Moment) {
        let Some(record) = self.cluster.pods.get(id).cloned() else { return };
        let is_decided_by = matches!(
            self.stages.get(id),
            Stage::Waiting(_) | Stage::Assumed { .. } | Stage::Stuck(Stuck::Evaluating)
        );
        if record.gates == Gates::Ours && is_decided_by {
            self.reconsider_pod(id, now);
        }
    }

    /// Asks about the pod, or not any more.
    pub(super) fn ask_about(&mut self, id: PodId, now: Moment) {
        if !self.evaluations.is_on() {
            return;
        }
        let Some(record) = self.cluster.pods.get(id).cloned() else { return };
        let selected = self.asked_of(id, &record);
        if selected != 0 {
            let is_waiting = record.gates != Gates::None;
            self.evaluations.ask(id, (record.namespace, selected), is_waiting, now);
            let is_pending = self.evaluations.is_pending(record.namespace);
            if is_pending && !self.reclassification.is_paused(record.namespace) {
                self.reclassify_later(record.namespace, Vec::new());
            }
            return;
        }
        self.evaluations.close(id);
        if self.evaluations.is_read(id) && self.selected_of(id, &record) == 0 && self.evaluations.unprice(id)
        {
            // What was said of it when one selected it counts no more, for its VM neither.
            let is_of_machine = self.cluster.machines.are_charged() && self.cluster.is_launcher(&record);
            let owner = if is_of_machine { self.cluster.claimed_owner(&record) } else { None };
            self.repricing.appraise_later(owner);
        }
        if record.gates == Gates::None && self.is_further_launcher(id, &record) {
            // What the VM is charged stays when the others go.
            for other in self.launchers_beside(id, &record) {
                self.evaluations.inherit(id, other);
            }
        }
    }

    /// The pod goes, or is over: who it was asked about in place of has to be asked about itself.
    pub(super) fn look_beside(&mut self, id: PodId, record: &PodRecord) {
        if self.evaluations.is_on() && record.ownership.is_some() {
            for other in self.launchers_beside(id, record) {
                self.evaluations.look_at(other);
            }
        }
    }

    /// Counts a pod that is counted natively because evaluators do not work.
    pub(super) fn note_native(&mut self, id: PodId) {
        let Some(record) = self.cluster.pods.get(id) else { return };
        let is_native = self.evaluations.counts_natively(self.asked_of(id, record));
        if is_native && self.evaluations.note_native(id) {
            self.stats.counted_natively += 1;
        }
    }

    /// The questions to ask now. Every process asks, whether it leads or not: so it knows the answers when it does.
    pub(super) fn plan_evaluations(&mut self) -> Vec<Evaluate> {
        let mut questions = Vec::new();
        while let Some(id) = self.evaluations.next(self.cluster.config.evaluations_at_a_time) {
            let Some(record) = self.cluster.pods.get(id).cloned() else { continue };
            if !self.is_asked_about(id, &record) {
                self.evaluations.close(id);
                self.evaluations.look_at(id);
                continue;
            }
            questions.extend(self.question_about(id, record));
        }
        questions
    }

    /// The question about the pod with this content, if it waits for an answer. It is in flight from now on.
    #[must_use]
    pub fn ask_at_once(&mut self, namespace: &str, name: &str, uid: &Uid, hash: u128) -> Option<Evaluate> {
        let id = self
            .cluster
            .namespaces
            .id(namespace)
            .and_then(|namespace| self.cluster.pods.find(namespace, name))?;
        let record = self.cluster.pods.get(id).filter(|record| record.uid == *uid).cloned()?;
        let is_open = self.evaluations.is_open(id, hash);
        if is_open { self.question_about(id, record) } else { None }
    }

    fn question_about(&mut self, id: PodId, record: PodRecord) -> Option<Evaluate> {
        let selected = self.asked_of(id, &record);
        let config = self.evaluations.shared_config().filter(|_| selected != 0)?;
        let Release { namespace, name, uid, version, .. } = self.cluster.address(id)?;
        let (hash, serial) = self.evaluations.begin(id)?;
        let is_launcher = self.cluster.machines.are_charged() && self.cluster.is_launcher(&record);
        let is_waiting = record.gates != Gates::None;
        let counted = record.charge;
        let native = if is_launcher { Arc::default() } else { Arc::clone(&counted) };
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
            config,
        })
    }

    pub(super) fn on_evaluated(
        &mut self,
        (id, uid): (PodId, &Uid),
        (hash, serial): (u128, u64),
        answer: Result<Price, Failed>,
        now: Moment,
    ) {
        let answered = self.evaluations.answered(serial, hash, answer, now);
        let Some(record) = self.cluster.pods.get(id).filter(|record| record.uid == *uid).cloned() else {
            return;
        };
        match answered {
            Answered::Dropped => {}
            Answered::Priced => self.on_priced(id, &record, now),
            Answered::Failed if self.leading && self.evaluations.is_told(id) => self.events.news(id, now),
            Answered::Failed => {}
        }
    }

    fn on_priced(&mut self, id: PodId, record: &PodRecord, now: Moment) {
        if self.cluster.machines.are_charged() && self.cluster.is_launcher(record) {
            let owner = self.cluster.claimed_owner(record);
            if let Some(owner) = owner {
                self.appraise(&owner, now);
            }
        }
        let is_stuck = matches!(self.stages.get(id), Stage::Stuck(Stuck::Evaluating));
        if is_stuck || !self.is_stage_right(id) {
            self.reclassify(id, record.namespace, now);
        }
        // What was admitted is held until what it has become is charged.
        self.on_admitted_pod_seen(id);
    }

    pub(super) fn look_at_evaluations(&mut self, now: Moment) {
        if !self.evaluations.is_on() && !self.evaluations.has_next(0) {
            return;
        }
        for id in self.evaluations.take_looks() {
            self.ask_about(id, now);
            // Whether it is asked about may decide whether it goes.
            let is_decided_by =
                matches!(self.stages.get(id), Stage::Stuck(Stuck::Evaluating) | Stage::Waiting(_));
            if let Some(namespace) =
                self.cluster.pods.get(id).filter(|_| is_decided_by).map(|it| it.namespace)
            {
                self.reclassify(id, namespace, now);
            }
        }
        let (told, is_other) = self.evaluations.pass_time(now);
        for id in told.into_iter().filter(|_| self.leading) {
            self.events.news(id, now);
        }
        if is_other {
            let waiting: Vec<(PodId, NamespaceId)> = self.evaluations.open().collect();
            for (id, namespace) in waiting {
                if matches!(self.stages.get(id), Stage::Stuck(Stuck::Evaluating) | Stage::Waiting(_)) {
                    self.reclassify(id, namespace, now);
                }
            }
        }
        for namespace in self.evaluations.take_ended() {
            self.reclassification.wake(namespace);
        }
    }

    /// Whether pods that take of the quota have no answer: what is recorded of them is not known.
    pub(super) fn has_unanswered(&self, id: QuotaId) -> bool {
        self.evaluations.is_on()
            && self
                .cluster
                .namespaces_of(id)
                .into_iter()
                .any(|namespace| self.evaluations.has_unanswered(namespace))
    }

    /// What is told of a pod that is held because there is no answer about it.
    pub(super) fn text_about_evaluation(&self, id: PodId) -> Option<String> {
        if !self.evaluations.is_told(id) {
            return None;
        }
        let selected = self.asked_of(id, self.cluster.pods.get(id)?);
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
