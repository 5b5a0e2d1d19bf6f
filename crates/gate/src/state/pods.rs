//! Applies watch events of pods.

use sluice_engine::{PodId, Uid};
use sluice_index::{PodChange, PodFacts, PodWire, Source};

use super::State;
use crate::config::Moment;
use crate::evaluators::Content;

impl State {
    pub fn begin_pods(&mut self) {
        self.cluster.pods.begin_list();
    }

    /// The list of pods is complete.
    pub fn end_pods(&mut self) {
        for id in self.cluster.pods.end_list() {
            self.forget_pod(id);
        }
    }

    /// A pod was added or modified.
    pub fn apply_pod(&mut self, wire: &PodWire, now: Moment) {
        self.see_pod(wire, Source::Watch, now);
    }

    /// A pod was added or modified, and was read before the state was locked: how long that takes is up to the tenant.
    pub fn apply_read_pod(&mut self, facts: PodFacts, now: Moment) {
        self.see_facts(facts, None, Source::Watch, now);
    }

    /// As [`Self::apply_read_pod`], with the content that evaluators are asked about.
    pub fn apply_pod_with_content(&mut self, facts: PodFacts, content: Option<Content>, now: Moment) {
        self.see_facts(facts, content, Source::Watch, now);
    }

    /// A pod is this, by an answer or the watch.
    pub(super) fn see_pod(&mut self, wire: &PodWire, by: Source, now: Moment) {
        let facts = self.cluster.config.read(wire, now);
        self.see_facts(facts, None, by, now);
    }

    fn see_facts(&mut self, facts: PodFacts, content: Option<Content>, by: Source, now: Moment) {
        let admitted = self.accounts.has_growth().then(|| (facts.namespace.clone(), facts.name.clone()));
        let before = self.cluster.known_claimant(&facts);
        let version = facts.version;
        let known = self
            .accounts
            .asks_evaluators()
            .then(|| self.cluster.named(&facts.namespace, &facts.name))
            .flatten();
        let is_news = known.is_none_or(|(_, known)| known != version);
        match self.cluster.pods.upsert(facts, by, &mut self.cluster.namespaces) {
            PodChange::Added(id) => self.accounts.on_pod_added(&self.cluster, id, content, None, now),
            PodChange::Changed(id) => {
                self.accounts.on_pod_changed(&self.cluster, id, (content, is_news), before, now);
            }
            PodChange::Replaced(old, id) => {
                // The handle may be the old one's: everything about the old one has to go first.
                self.accounts.drop_pod(&self.cluster, id, &old);
                self.accounts.on_pod_added(&self.cluster, id, content, before, now);
            }
            PodChange::Same => {
                if let Some((id, _)) = known
                    && self.cluster.pods.get(id).is_some_and(|pod| pod.version == version)
                {
                    self.accounts.on_pod_same(&self.cluster, id, (content, is_news), now);
                }
            }
        }
        let find = |(namespace, name): (Box<str>, Box<str>)| {
            self.cluster.pods.find(self.cluster.namespaces.id(&namespace)?, &name)
        };
        if let Some(id) = admitted.and_then(find) {
            self.accounts.on_admitted_pod_seen(&self.cluster, id);
        }
        self.carry_out();
    }

    pub fn delete_pod(&mut self, wire: &PodWire) {
        let meta = &wire.metadata;
        let id =
            self.cluster.namespaces.id(meta.namespace.as_deref().unwrap_or_default()).and_then(|namespace| {
                self.cluster.pods.find(namespace, meta.name.as_deref().unwrap_or_default())
            });
        let Some(id) = id else { return };
        let uid = Uid::parse(meta.uid.as_deref().unwrap_or_default());
        if self.cluster.pods.get(id).is_some_and(|record| record.uid == uid) {
            self.forget_pod(id);
        }
    }

    /// An API server has answered that the pod does not exist any more. Forgets it, and returns whether it did: a pod of a
    /// VM stays charged until the watch shows that it was deleted. The VM may have migrated, and before the deletion the
    /// watch shows the pod in which it runs now.
    pub(super) fn forget_gone(&mut self, id: PodId) -> bool {
        let is_of_machine = self.cluster.pods.get(id).is_some_and(|record| record.ownership().is_some());
        if !is_of_machine {
            self.forget_pod(id);
        }
        !is_of_machine
    }

    pub(super) fn forget_pod(&mut self, id: PodId) {
        // The pod's claims end while its namespace is still known.
        let Some(record) = self.cluster.pods.get(id).cloned() else { return };
        self.accounts.drop_pod(&self.cluster, id, &record);
        self.cluster.pods.remove(id, &mut self.cluster.namespaces);
        self.accounts.on_launcher_changed(&self.cluster, &record);
        self.carry_out();
    }
}
