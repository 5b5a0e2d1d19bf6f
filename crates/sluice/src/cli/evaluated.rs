//! What pods are charged by the rules of `Evaluator`s, where no controller is asked: rules need none. What sidecars say is
//! known to the leader alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use sluice_api::sidecar_of_evaluator;
use sluice_controllers::evaluators::EvaluatorObjects;
use sluice_evaluators::RuleEvaluator;
use sluice_gate::{Gate, MOST_EVALUATORS};
use sluice_index::{AaqWire, EvaluatorWire, PodWire};
use sluice_runtime::watch::Event;

use super::lists::feed;
use crate::evaluators::by_rules;

/// What evaluators there are.
#[derive(Debug, Default)]
pub(super) struct Evaluated {
    rules: Vec<Arc<RuleEvaluator>>,
    has_sidecars: bool,
}

impl Evaluated {
    /// The rules that are in force in this cluster.
    pub(super) fn read(aaqs: &[AaqWire], evaluators: &[EvaluatorWire]) -> Self {
        let of_aaqs = aaqs.iter().map(|aaq| aaq.spec.sidecars()).max_by_key(BTreeSet::len);
        let named = evaluators.iter().filter_map(|it| {
            let name = it.metadata.name.clone().unwrap_or_default();
            sidecar_of_evaluator(&name, &it.spec).map(|_| name)
        });
        // Of one name one runs.
        let sidecars: BTreeSet<_> = of_aaqs.into_iter().flatten().chain(named).collect();
        let objects = EvaluatorObjects::of_rules(MOST_EVALUATORS.saturating_sub(sidecars.len()));
        let mut rules = Vec::new();
        feed(evaluators, |event| rules.extend(objects.apply(event).enforced.unwrap_or_default().rules));
        Self { rules, has_sidecars: !sidecars.is_empty() }
    }

    /// Whether pods have to be read with their JSON.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// What is not known; `knows_texts`: pods are there with their JSON.
    pub(super) fn assumed(&self, knows_texts: bool) -> Option<String> {
        let is_judged = knows_texts || !self.has_rules();
        Some(match (self.has_sidecars, is_judged) {
            (false, true) => return None,
            (true, true) => {
                "sidecars are not asked: pods about which they say something are shown as Kubernetes and rules count \
                 them, and only the leader knows what they take"
            }
            (_, false) => {
                "evaluators are not asked: pods about which they say something are shown as Kubernetes counts them"
            }
        }
        .to_owned())
    }

    /// Feeds the gate with pods, which are charged by rules as the controller that leads charges them. `texts`: the JSON of
    /// each; none where it is not known.
    pub(super) fn feed_pods(&self, gate: &Gate, pods: &[PodWire], texts: &[Box<RawValue>]) {
        if texts.is_empty() || !self.has_rules() {
            return feed(pods, |event| gate.on_pods(event));
        }
        gate.evaluate_by(by_rules(self.rules.clone()));
        gate.on_pods(&Event::Init);
        for (pod, text) in pods.iter().zip(texts) {
            gate.on_pods_with_text(&Event::InitApply(pod.clone()), Some(text.get()));
        }
        gate.on_pods(&Event::InitDone);
    }
}
