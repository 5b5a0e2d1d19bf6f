//! What `Evaluator`s may charge, and whose containers run, from the events of a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use sluice_api::sidecar_of_evaluator;
use sluice_engine::Resource;
use sluice_index::EvaluatorWire;
use sluice_runtime::watch::Event;

/// All of them by name, as far as they were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenEvaluators(BTreeMap<String, Seen>);

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    charges: Charges,
    has_container: bool,
}

/// Of keys that Kubernetes does not know.
#[derive(Clone, Debug, PartialEq)]
enum Charges {
    /// It is not enforced.
    Nothing,
    /// These.
    Keys(BTreeSet<Resource>),
    /// Whatever a sidecar says.
    Any,
}

impl SeenEvaluators {
    /// Whether one may charge any key.
    #[must_use]
    pub fn charge_any(&self) -> bool {
        self.0.values().any(|seen| seen.charges == Charges::Any)
    }

    /// Whether one says that it charges this.
    #[must_use]
    pub fn charge(&self, resource: &Resource) -> bool {
        self.0.values().any(|seen| matches!(&seen.charges, Charges::Keys(keys) if keys.contains(resource)))
    }

    /// Names of those that have a container.
    pub fn containers(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, seen)| seen.has_container).map(|(name, _)| name.as_str())
    }
}

impl FromIterator<EvaluatorWire> for SeenEvaluators {
    fn from_iter<I: IntoIterator<Item = EvaluatorWire>>(evaluators: I) -> Self {
        Self(evaluators.into_iter().map(|evaluator| seen(&evaluator)).collect())
    }
}

/// Follows them.
#[derive(Debug, Default)]
pub struct EvaluatorSightings {
    known: SeenEvaluators,
    /// Those of the list that is being read.
    listed: SeenEvaluators,
}

impl EvaluatorSightings {
    /// Applies an event of the watch. Returns what is seen from then on; `None`: that is as before.
    pub fn apply(&mut self, event: &Event<EvaluatorWire>) -> Option<Arc<SeenEvaluators>> {
        match event {
            Event::Init => {
                self.listed.0.clear();
                return None;
            }
            Event::InitApply(evaluator) => {
                self.listed.0.extend([seen(evaluator)]);
                return None;
            }
            Event::InitDone => self.known = std::mem::take(&mut self.listed),
            Event::Apply(evaluator) => self.known.0.extend([seen(evaluator)]),
            Event::Delete(evaluator) => drop(self.known.0.remove(name(evaluator))),
        }
        Some(Arc::new(self.known.clone()))
    }
}

fn name(evaluator: &EvaluatorWire) -> &str {
    evaluator.metadata.name.as_deref().unwrap_or_default()
}

fn seen(evaluator: &EvaluatorWire) -> (String, Seen) {
    let (name, spec) = (name(evaluator), &evaluator.spec);
    let keys =
        |keys: &mut dyn Iterator<Item = &str>| Charges::Keys(keys.map(Resource::from_quota_key).collect());
    let charges = match (spec.get("mode").and_then(Value::as_str), spec.get("sidecar"), spec.get("keys")) {
        (Some("Off" | "Shadow"), _, _) => Charges::Nothing,
        (_, Some(Value::Object(_)), Some(Value::Array(named))) => {
            keys(&mut named.iter().filter_map(Value::as_str))
        }
        (_, Some(Value::Object(_)), _) => Charges::Any,
        _ => {
            let charge = spec.pointer("/cel/charge").and_then(Value::as_object);
            keys(&mut charge.into_iter().flatten().map(|(key, _)| key.as_str()))
        }
    };
    let has_container = sidecar_of_evaluator(name, spec).is_some();
    (name.to_owned(), Seen { charges, has_container })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;

    use super::*;

    fn of(name: &str, spec: &Value) -> EvaluatorWire {
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
    }

    #[test]
    fn those_count_that_are_enforced_and_only_the_keys_that_they_may_charge() {
        let rule = |mode: &str| {
            let cel = json!({ "match": "true", "charge": { "example.com/license": "1" } });
            json!({ "mode": mode, "cel": cel })
        };
        let resource = Resource::from_quota_key;
        for (spec, license, any) in [
            (rule("Enforce"), true, false),
            (rule("Off"), false, false),
            (rule("Shadow"), false, false),
            (json!({ "cel": { "charge": { "example.com/other": "1" } } }), false, false),
            (json!({ "sidecar": {} }), false, true),
            (json!({ "sidecar": {}, "mode": "Shadow" }), false, false),
            (json!({ "sidecar": {}, "keys": ["example.com/license"] }), true, false),
            (json!({}), false, false),
        ] {
            let seen: SeenEvaluators = [of("a", &spec)].into_iter().collect();
            let is = (seen.charge(&resource("example.com/license")), seen.charge_any());
            assert_eq!(is, (license, any), "{spec}");
        }
    }

    #[test]
    fn what_is_seen_follows_the_watch_and_not_a_list_that_broke_off() {
        let mut sightings = EvaluatorSightings::default();
        let container = json!({ "sidecar": { "image": "i" } });
        let events = [
            Event::Init,
            Event::InitApply(of("broke-off", &container)),
            Event::Init,
            Event::InitApply(of("a", &container)),
            Event::InitApply(of("b", &json!({ "sidecar": {} }))),
            Event::InitDone,
            Event::Apply(of("b", &container)),
            Event::Apply(of("a", &json!({ "mode": "Off", "sidecar": { "image": "i" } }))),
            Event::Delete(of("b", &container)),
        ];
        let seen = events.iter().filter_map(|event| sightings.apply(event));
        let named: Vec<_> = seen.map(|seen| seen.containers().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(named, ["a", "a b", "b", ""]);
    }
}
