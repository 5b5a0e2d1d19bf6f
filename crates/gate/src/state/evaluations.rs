//! Which evaluators are asked, and whether they work.

use std::sync::Arc;

use sluice_engine::Uid;

use super::State;
use crate::config::Moment;
use crate::evaluators::{Evaluate, EvaluatorsConfig, MOST_EVALUATORS};

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
    pub fn is_evaluated(&self, namespace: &str, name: &str, uid: &Uid, hash: u128) -> bool {
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
    pub fn ask_at_once(&mut self, namespace: &str, name: &str, uid: &Uid, hash: u128) -> Option<Evaluate> {
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
