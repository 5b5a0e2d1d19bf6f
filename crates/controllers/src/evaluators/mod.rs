//! `Evaluator`s: which of their rules are in force, and what is said of that in their status.

mod status;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::{EvaluatorMode, EvaluatorSpec, EvaluatorStatus};
use sluice_evaluators::{RuleEvaluator, check_examples};
use sluice_gate::MOST_SHADOWS;
use sluice_index::{EvaluatorWire, Stated};
use sluice_runtime::watch::Event;
use tokio::sync::watch;

/// What is known of one.
#[derive(Clone, Debug)]
struct Object {
    created: Option<Timestamp>,
    spec: Value,
    rule: Arc<RuleEvaluator>,
    /// Whether the rule says of its examples what they say; `None`: it has none, or cannot be used.
    consistent: Option<Result<(), Arc<str>>>,
    /// `None`: its status cannot be read, so nothing is said of it.
    stated: Option<Arc<Stated<EvaluatorStatus>>>,
}

impl Object {
    /// A mode that cannot be read holds pods, as all that cannot be read of a rule.
    fn mode(&self) -> EvaluatorMode {
        match self.spec.get("mode").and_then(Value::as_str) {
            Some("Off") => EvaluatorMode::Off,
            Some("Shadow") => EvaluatorMode::Shadow,
            _ => EvaluatorMode::Enforce,
        }
    }
}

/// All of them by name.
#[derive(Clone, Debug, Default)]
struct Objects {
    known: BTreeMap<Arc<str>, Object>,
    /// Those of the list that is being read.
    listed: Option<BTreeMap<Arc<str>, Object>>,
}

/// Whose rule is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is.
    InForce,
    /// It is evaluated, and charged nowhere.
    Shadow,
    /// It is switched off.
    Off,
    /// As many older ones as there may be are in force.
    TooMany,
    /// As many older ones as there may be are in the shadow.
    TooManyShadows,
}

impl Objects {
    /// Takes an event. Returns whether something is known that was not known before.
    fn apply(&mut self, event: &Event<EvaluatorWire>) -> bool {
        match event {
            Event::Init => {
                self.listed = Some(BTreeMap::new());
                false
            }
            Event::InitApply(wire) => {
                if let Some((name, object)) = self.read(wire)
                    && let Some(listed) = &mut self.listed
                {
                    listed.insert(name, object);
                }
                false
            }
            Event::InitDone => {
                self.known = self.listed.take().unwrap_or_default();
                true
            }
            Event::Apply(wire) => {
                if let Some((name, object)) = self.read(wire) {
                    self.known.insert(name, object);
                }
                true
            }
            Event::Delete(wire) => {
                wire.metadata.name.as_deref().is_some_and(|name| self.known.remove(name).is_some())
            }
        }
    }

    /// A rule that is written as it was is not compiled again.
    fn read(&self, wire: &EvaluatorWire) -> Option<(Arc<str>, Object)> {
        let name: Arc<str> = wire.metadata.name.as_deref()?.into();
        let same = self.known.get(&name).filter(|known| known.spec == wire.spec);
        let (rule, consistent) = same.map_or_else(
            || read_rule(&name, &wire.spec),
            |known| (Arc::clone(&known.rule), known.consistent.clone()),
        );
        let created = wire.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let stated = Stated::of(&wire.metadata, wire.status.as_ref());
        Some((name, Object { created, spec: wire.spec.clone(), rule, consistent, stated }))
    }

    /// Whose rules are in force, when there may be so many: the eldest, so that a new one takes no other's place.
    fn places(&self, most: usize) -> Vec<(&Arc<str>, &Object, Place)> {
        let mut objects: Vec<_> = self.known.iter().collect();
        objects.sort_by_key(|(name, object)| (object.created, *name));
        let (mut left, mut shadows_left) = (most, MOST_SHADOWS);
        let mut place = |object: &Object| {
            let (left, place, too_many) = match object.mode() {
                EvaluatorMode::Off => return Place::Off,
                EvaluatorMode::Enforce => (&mut left, Place::InForce, Place::TooMany),
                EvaluatorMode::Shadow => (&mut shadows_left, Place::Shadow, Place::TooManyShadows),
            };
            let Some(fewer) = left.checked_sub(1) else { return too_many };
            *left = fewer;
            place
        };
        objects.into_iter().map(|(name, object)| (name, object, place(object))).collect()
    }

    /// The rules in force, and those in the shadow.
    fn evaluated(&self, most: usize) -> [Vec<Arc<RuleEvaluator>>; 2] {
        let places = self.places(most);
        [Place::InForce, Place::Shadow].map(|wanted| {
            let there = places.iter().filter(|(_, _, place)| *place == wanted);
            there.map(|(_, object, _)| Arc::clone(&object.rule)).collect()
        })
    }
}

/// The rule, and whether it says of its examples what they say.
fn read_rule(name: &str, spec: &Value) -> (Arc<RuleEvaluator>, Option<Result<(), Arc<str>>>) {
    let rule = RuleEvaluator::read(name, spec);
    let examples = EvaluatorSpec::deserialize(spec).map(|spec| spec.examples).unwrap_or_default();
    let is_said = !examples.is_empty() && rule.fault().is_none();
    let consistent =
        is_said.then(|| check_examples(&rule, &examples).map_err(|error| error.to_string().into()));
    (Arc::new(rule), consistent)
}

/// All `Evaluator`s of a cluster.
#[derive(Debug)]
pub struct EvaluatorObjects {
    /// Most rules that are in force at a time.
    most: usize,
    objects: watch::Sender<Objects>,
}

impl EvaluatorObjects {
    /// None is known yet. At most so many rules are in force at a time.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, objects: watch::Sender::default() }
    }

    /// Takes an event of the watch of them. Returns which rules are others than before.
    pub fn apply(&self, event: &Event<EvaluatorWire>) -> Changed {
        let mut changed = Changed::default();
        self.objects.send_if_modified(|objects| {
            let [enforced, shadow] = objects.evaluated(self.most);
            let is_news = objects.apply(event);
            let [enforced_now, shadow_now] = objects.evaluated(self.most);
            changed = Changed {
                enforced: (!are_same(&enforced, &enforced_now)).then_some(enforced_now),
                shadow: (!are_same(&shadow, &shadow_now)).then_some(shadow_now),
            };
            is_news
        });
        changed
    }
}

fn are_same(before: &[Arc<RuleEvaluator>], now: &[Arc<RuleEvaluator>]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// All rules of a kind where they are others than before.
#[derive(Debug, Default)]
pub struct Changed {
    /// Those in force.
    pub enforced: Option<Vec<Arc<RuleEvaluator>>>,
    /// Those in the shadow.
    pub shadow: Option<Vec<Arc<RuleEvaluator>>>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;

    use super::*;

    fn wire(name: &str, day: u8, spec: &Value) -> EvaluatorWire {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")},
            "spec": spec,
        }))
        .unwrap()
    }

    fn charging(key: &str) -> Value {
        json!({"cel": {"match": "true", "charge": {key: "1"}}})
    }

    fn names(rules: Option<Vec<Arc<RuleEvaluator>>>) -> Option<Vec<String>> {
        Some(rules?.iter().map(|rule| rule.name().to_string()).collect())
    }

    #[test]
    fn rules_are_in_force_by_age_and_not_before_their_list_is_complete() {
        let objects = EvaluatorObjects::new(2);
        let mut off = charging("example.com/off");
        off["mode"] = "Off".into();
        assert_eq!(names(objects.apply(&Event::Init).enforced), None);
        for (name, day, spec) in
            [("c", 3, charging("example.com/c")), ("b", 2, charging("example.com/b")), ("off", 1, off)]
        {
            assert_eq!(names(objects.apply(&Event::InitApply(wire(name, day, &spec))).enforced), None);
        }
        assert_eq!(names(objects.apply(&Event::InitDone).enforced).unwrap(), ["b", "c"]);
        let apply =
            |name, day, spec: &Value| names(objects.apply(&Event::Apply(wire(name, day, spec))).enforced);
        assert_eq!(apply("d", 4, &charging("example.com/d")), None, "it waits until an older one goes");
        assert_eq!(apply("b", 2, &charging("example.com/b")), None, "nothing of its rule has changed");
        assert_eq!(apply("b", 2, &charging("example.com/other")).unwrap(), ["b", "c"]);
        let gone = names(objects.apply(&Event::Delete(wire("c", 3, &charging("example.com/c")))).enforced);
        assert_eq!(gone.unwrap(), ["b", "d"]);
    }

    #[test]
    fn a_list_that_is_read_again_changes_nothing() {
        let objects = EvaluatorObjects::new(2);
        for is_first in [true, false] {
            objects.apply(&Event::Init);
            objects.apply(&Event::InitApply(wire("a", 1, &charging("example.com/a"))));
            assert_eq!(objects.apply(&Event::InitDone).enforced.is_some(), is_first);
        }
    }

    #[test]
    fn a_rule_in_the_shadow_takes_no_place_of_others_and_changes_nothing_of_them() {
        let objects = EvaluatorObjects::new(1);
        objects.apply(&Event::Init);
        objects.apply(&Event::InitApply(wire("a", 9, &charging("example.com/a"))));
        objects.apply(&Event::InitDone);
        let mut shadow = charging("example.com/b");
        shadow["mode"] = "Shadow".into();
        for day in 1..=5 {
            let Changed { enforced, shadow } =
                objects.apply(&Event::Apply(wire(&format!("shadow-{day}"), day, &shadow)));
            assert_eq!(names(enforced), None);
            assert_eq!(shadow.is_some(), day <= 4, "no more than {MOST_SHADOWS} are evaluated");
        }
        let Changed { enforced, shadow } =
            objects.apply(&Event::Apply(wire("shadow-1", 1, &charging("example.com/b"))));
        assert_eq!(names(enforced).unwrap(), ["shadow-1"], "it is older");
        assert_eq!(names(shadow).unwrap(), ["shadow-2", "shadow-3", "shadow-4", "shadow-5"]);
    }
}
