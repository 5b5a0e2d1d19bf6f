//! Rules that the evaluator of a replica is about to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::evaluator::{content_of, silence};
use super::server::{Kind, uid};
use super::shadow::{seen, version_of};
use super::world::World;
use crate::{Content, EvaluatorsConfig, Said};

/// Rules that a replica is about to follow.
#[derive(Debug)]
pub struct NextPolicy {
    config: Arc<EvaluatorsConfig>,
    number: u32,
    /// Pods that are still to be read beside the watch.
    unread: Vec<Value>,
    /// The version in which each pod was answered about, by its uid.
    answered: BTreeMap<String, u64>,
}

impl World {
    /// The evaluator of a replica is about to follow other rules. One that is sent other pods does so at once.
    pub fn expect_policy(&mut self, replica: usize) {
        if self.evaluators.in_rounds || self.server.prices.is_none() {
            return;
        }
        let config = self.server.evaluators();
        let number = self.replicas[replica].state.expect_evaluators(Arc::clone(&config)).unwrap();
        let unread = self.server.all(Kind::Pod, "").map(|(_, pod)| pod.clone()).collect();
        let next = NextPolicy { config, number, unread, answered: BTreeMap::new() };
        self.evaluators.next.insert(replica, next);
        self.replicas[replica].unread = Some(Vec::new());
    }

    /// So many more pods are read for the rules that the evaluator is about to follow.
    pub fn read_beside(&mut self, replica: usize, count: usize) {
        for _ in 0..count {
            let next = self.evaluators.next.get_mut(&replica);
            let Some(pod) = next.and_then(|next| next.unread.pop()) else { return };
            self.ask_next_about(replica, &pod);
        }
    }

    /// Pods that the watch has shown are asked about by the rules that the evaluator is about to follow.
    pub fn ask_next(&mut self, replica: usize) {
        for pod in self.replicas[replica].unread.as_mut().map(std::mem::take).unwrap_or_default() {
            self.ask_next_about(replica, &pod);
        }
    }

    fn ask_next_about(&mut self, replica: usize, pod: &Value) {
        let Some(number) = self.evaluators.next.get(&replica).map(|next| next.number) else { return };
        let content = Content { hash: content_of(pod), selected_by: 1, revision: number };
        let version = version_of(pod);
        let state = &mut self.replicas[replica].state;
        let Some(ask) = state.see_for_next(&seen(pod), version, content) else { return };
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let said = if self.evaluators.silent.contains(&(replica, name)) {
            Err(silence())
        } else {
            let policy = self.evaluators.policies.get(&replica).copied().unwrap_or_default() + 1;
            let milli_cpu = self.evaluators.price_by(policy, replica, pod);
            Ok(Said::from(self.priced(pod, milli_cpu)))
        };
        let state = &mut self.replicas[replica].state;
        state.say_for_next((ask.pod, &ask.uid), (version, number, ask.selected), said);
        if let Some(next) = self.evaluators.next.get_mut(&replica) {
            next.answered.insert(uid(pod).to_owned(), version.number());
        }
    }

    /// The evaluator follows the rules that were next. What was not read for them is listed.
    pub fn switch_policy(&mut self, replica: usize) {
        let Some(next) = self.evaluators.next.remove(&replica) else { return };
        self.replicas[replica].unread = None;
        *self.evaluators.policies.entry(replica).or_default() += 1;
        let now = self.moment();
        let is_all = next.unread.is_empty();
        self.evaluators.forget(replica, self.now_ms);
        let state = &self.replicas[replica].state;
        let is_answered = |(_, pod): (_, &sluice_index::PodRecord)| {
            let name = pod.uid.to_string();
            (next.answered.get(&name) == Some(&pod.version.number())).then_some(name)
        };
        let answered: BTreeSet<String> = state.index().0.iter().filter_map(is_answered).collect();
        if let Some((_, known)) = self.evaluators.asked.get_mut(&replica) {
            known.extend(answered);
        }
        self.replicas[replica].state.follow_evaluators(Some(next.config), now);
        if !is_all {
            self.replicas[replica].relist(&self.server, Kind::Pod);
        }
    }
}
