//! Which evaluators are asked, and whether they work.

use std::sync::Arc;

use sluice_engine::{PodId, Uid};
use sluice_index::Version;

use super::State;
use crate::config::Moment;
use crate::evaluators::{AskNext, Content, Evaluate, EvaluatorsConfig, Failed, MOST_EVALUATORS, Said};
use crate::shadow::SeenPod;

impl State {
    /// From now on these evaluators are asked, or none. No pod of the namespaces that are concerned is released before each
    /// of those that run has an answer of theirs, or a while has passed. Returns the number of the configuration: pods have
    /// to be seen again, with [contents](crate::Content) that were read by it.
    pub fn follow_evaluators(&mut self, config: Option<Arc<EvaluatorsConfig>>, now: Moment) -> u32 {
        let asked_before = self.accounts.asks_evaluators();
        let revision = self.accounts.follow_evaluators(&self.cluster, config, now);
        if asked_before != self.accounts.asks_evaluators() {
            // Which keys nothing counts is another list.
            self.restate_quotas();
        }
        self.carry_out();
        revision
    }

    /// Makes these the next evaluators. Returns their number. Until [`Self::follow_evaluators`] puts them in force, the
    /// caller shows pods to them by [`Self::see_for_next`]. `None` while the gate reads pods by other rules of Kubernetes.
    pub(crate) fn expect_evaluators(&mut self, config: Arc<EvaluatorsConfig>) -> Option<u32> {
        self.accounts.expect_evaluators(config)
    }

    /// Whether these are the next evaluators.
    pub(crate) fn expects(&self, config: &Arc<EvaluatorsConfig>) -> bool {
        self.accounts.expects(config)
    }

    /// The pod has this content in this version, read for the next evaluators. Returns the question about it to these, if
    /// there is one.
    pub(crate) fn see_for_next(
        &mut self,
        pod: &SeenPod,
        version: Version,
        content: Content,
    ) -> Option<AskNext> {
        let id = self.seen(pod)?;
        self.accounts.see_for_next(&self.cluster, id, version, content)
    }

    /// Stores the answer of the next evaluators about the pod. `of`: its version, their number, and which of them were
    /// asked.
    pub(crate) fn say_for_next(
        &mut self,
        (id, uid): (PodId, &Uid),
        of: (Version, u32, u16),
        said: Result<Said, Failed>,
    ) {
        if self.cluster.pods.get(id).is_some_and(|record| record.uid == *uid) {
            self.accounts.say_for_next(id, of, said);
        }
    }

    /// These evaluators do not work, a bit for each, by their places in the configuration.
    pub fn set_evaluators_broken(&mut self, broken: u16, now: Moment) {
        self.accounts.set_evaluators_broken(&self.cluster, broken, now);
        self.carry_out();
    }

    /// The evaluators take so many questions at once, by their places in the configuration. Nothing is asked again.
    pub fn limit_evaluators(&mut self, at_once: &[usize]) {
        let mut all = [0; MOST_EVALUATORS];
        all.iter_mut().zip(at_once).for_each(|(known, at_once)| *known = *at_once);
        self.accounts.limit_evaluators(all);
    }

    /// How many pods have no answer: those that wait for one, and those that run. `None`: there are no evaluators.
    #[must_use]
    pub fn without_answer(&self) -> Option<(usize, usize)> {
        self.accounts.without_answer()
    }

    /// Whether the pod with this content waits for an answer about it.
    #[must_use]
    pub fn is_evaluated(&self, namespace: &str, name: &str, uid: &Uid, hash: u64) -> bool {
        let found = self
            .cluster
            .namespaces
            .id(namespace)
            .and_then(|namespace| self.cluster.pods.find(namespace, name));
        found.is_some_and(|id| {
            self.cluster.pods.get(id).is_some_and(|record| record.uid == *uid)
                && self.accounts.is_asked(id, hash)
        })
    }

    /// The question about the pod with this content, if it waits for an answer. It is in flight from now on.
    #[must_use]
    pub fn ask_at_once(&mut self, namespace: &str, name: &str, uid: &Uid, hash: u64) -> Option<Evaluate> {
        let id = self
            .cluster
            .namespaces
            .id(namespace)
            .and_then(|namespace| self.cluster.pods.find(namespace, name))?;
        let record = self.cluster.pods.get(id).filter(|record| record.uid == *uid).cloned()?;
        let is_open = self.accounts.is_asked(id, hash);
        if is_open { self.accounts.question_about(&self.cluster, id, record) } else { None }
    }
}
