//! Rules in the shadow: which there are, what they say of pods, and what that would change.

use std::sync::Arc;

use sluice_engine::{Charge, PodId};

use super::State;
use crate::evaluators::Content;
use crate::shadow::{Opinion, RuleFigures, SeenPod, ShadowConfig};

impl State {
    /// From now on these rules are in the shadow, or none. Returns the number of the configuration: pods have to be seen
    /// again, with [contents](Content) that were read by it.
    pub fn follow_shadow(&mut self, config: Option<Arc<ShadowConfig>>) -> u32 {
        self.accounts.follow_shadow(config)
    }

    /// The pod was seen with this content, after it was applied. Returns what Kubernetes counts of it, if its rules have to
    /// be evaluated.
    pub fn see_in_shadow(&mut self, pod: &SeenPod, content: Content) -> Option<Arc<Charge>> {
        let id = self.seen(pod)?;
        self.accounts.see_in_shadow(&self.cluster, id, content)
    }

    /// The rules, by their places, say this of the pod with this content.
    pub fn on_opinions(&mut self, pod: &SeenPod, content: Content, opinions: Vec<(usize, Opinion)>) {
        if let Some(id) = self.seen(pod) {
            self.accounts.on_opinions(id, content, opinions);
        }
    }

    /// How many pods each rule matches and holds, by its name, those in the shadow with what they would change.
    #[must_use]
    pub fn rule_figures(&self) -> Vec<(Arc<str>, RuleFigures)> {
        let mut figures = self.accounts.rule_figures();
        figures.extend(self.accounts.shadow_figures(&self.cluster));
        figures
    }

    fn seen(&self, pod: &SeenPod) -> Option<PodId> {
        let (id, _) = self.cluster.named(&pod.namespace, &pod.name)?;
        self.cluster.pods.get(id).is_some_and(|record| record.uid == pod.uid).then_some(id)
    }
}
