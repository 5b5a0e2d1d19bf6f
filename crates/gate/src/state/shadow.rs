//! Evaluators in the shadow: which there are, what they say of pods, and what that would change.

use std::sync::Arc;

use sluice_engine::{Charge, PodId};
use sluice_index::Version;

use super::State;
use crate::config::Moment;
use crate::evaluators::Content;
use crate::shadow::{AskInShadow, Opinion, RuleFigures, SaidLater, SeenPod, ShadowConfig};

impl State {
    /// From now on these rules are in the shadow, or none. Returns the number of the configuration: pods have to be seen
    /// again, with [contents](Content) that were read by it.
    pub fn follow_shadow(&mut self, config: Option<Arc<ShadowConfig>>) -> u32 {
        self.accounts.follow_shadow(config)
    }

    /// The pod was seen with this content, in the version that was applied. Returns what Kubernetes counts of it, if its
    /// rules have to be evaluated.
    pub fn see_in_shadow(
        &mut self,
        pod: &SeenPod,
        version: Version,
        content: Content,
    ) -> Option<Arc<Charge>> {
        let id = self.seen(pod)?;
        // Of a later version the watch tells in a moment; an earlier one is over.
        self.cluster.pods.get(id).filter(|record| record.version == version)?;
        self.accounts.see_in_shadow(&self.cluster, id, content)
    }

    /// The rules, by their places, say this of the pod with this content.
    pub fn on_opinions(&mut self, pod: &SeenPod, content: Content, opinions: Vec<(usize, Opinion)>) {
        if let Some(id) = self.seen(pod) {
            self.accounts.on_opinions(id, content, opinions);
        }
    }

    /// The namespaces in which evaluators may be asked.
    pub(crate) fn shadow_namespaces(&self) -> Vec<Arc<str>> {
        let with_quotas = self.cluster.namespaces.iter().filter(|(_, known)| !known.quotas().is_empty());
        with_quotas
            .filter(|(_, known)| !known.pods().is_empty())
            .map(|(_, known)| Arc::clone(&known.name))
            .collect()
    }

    /// The latest version of the pods of a namespace, and how many there are: others say that one of them has changed.
    pub(crate) fn pods_of_namespace(&self, namespace: &str) -> (u64, usize) {
        let known = self.cluster.namespaces.id(namespace).and_then(|id| self.cluster.namespaces.get(id));
        let pods = known.map_or(&[][..], |known| known.pods());
        let versions =
            pods.iter().filter_map(|id| self.cluster.pods.get(*id)).map(|pod| pod.version.number());
        (versions.max().unwrap_or_default(), pods.len())
    }

    /// The pods of the namespace about which evaluators are to be asked now that are asked later, those behind the pod
    /// `after` first; `again`: these about all.
    pub(crate) fn plan_shadow_asks(
        &mut self,
        namespace: &str,
        again_after: (u16, PodId),
        now: Moment,
    ) -> Vec<AskInShadow> {
        let Some(namespace) = self.cluster.namespaces.id(namespace) else { return Vec::new() };
        self.accounts.plan_shadow_asks(&self.cluster, namespace, again_after, now)
    }

    /// These evaluators in the shadow can be asked again, a bit for each.
    pub(crate) fn retry_in_shadow(&mut self, places: u16) {
        self.accounts.retry_in_shadow(places);
    }

    /// Evaluators that were asked later, by the configuration of this number, say this of the pod with this hash.
    pub(crate) fn on_said_later(
        &mut self,
        pod: &SeenPod,
        (revision, hash): (u32, u64),
        said: Vec<SaidLater>,
        now: Moment,
    ) {
        if let Some(id) = self.seen(pod).filter(|_| self.accounts.shadow_revision() == revision) {
            self.accounts.on_said_later(id, hash, said, now);
        }
    }

    /// How many pods each evaluator matches and holds, by its name, those in the shadow with what they would change.
    #[must_use]
    pub fn rule_figures(&self) -> Vec<(Arc<str>, RuleFigures)> {
        let mut figures = self.accounts.rule_figures();
        figures.extend(self.accounts.shadow_figures(&self.cluster));
        figures
    }

    pub(super) fn seen(&self, pod: &SeenPod) -> Option<PodId> {
        let (id, _) = self.cluster.named(&pod.namespace, &pod.name)?;
        self.cluster.pods.get(id).is_some_and(|record| record.uid == pod.uid).then_some(id)
    }
}
