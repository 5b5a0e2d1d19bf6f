//! `Evaluator`s: which of their rules are in force, and what is said of that in their status.

mod status;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::EvaluatorStatus;
use sluice_evaluators::RuleEvaluator;
use sluice_index::{EvaluatorWire, Stated};
use sluice_runtime::watch::Event;
use tokio::sync::watch;

/// What is known of one.
#[derive(Clone, Debug)]
struct Object {
    created: Option<Timestamp>,
    spec: Value,
    rule: Arc<RuleEvaluator>,
    /// `None`: its status cannot be read, so nothing is said of it.
    stated: Option<Arc<Stated<EvaluatorStatus>>>,
}

impl Object {
    fn is_off(&self) -> bool {
        self.spec.get("mode").and_then(Value::as_str) == Some("Off")
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
    /// It is switched off.
    Off,
    /// As many older ones as there may be are in force.
    TooMany,
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
        let rule = same.map_or_else(
            || Arc::new(RuleEvaluator::read(&name, &wire.spec)),
            |known| Arc::clone(&known.rule),
        );
        let created = wire.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let stated = Stated::of(&wire.metadata, wire.status.as_ref());
        Some((name, Object { created, spec: wire.spec.clone(), rule, stated }))
    }

    /// Whose rules are in force, when there may be so many: the eldest, so that a new one takes no other's place.
    fn places(&self, most: usize) -> Vec<(&Arc<str>, &Object, Place)> {
        let mut objects: Vec<_> = self.known.iter().collect();
        objects.sort_by_key(|(name, object)| (object.created, *name));
        let mut left = most;
        let mut place = |object: &Object| {
            if object.is_off() {
                return Place::Off;
            }
            let Some(fewer) = left.checked_sub(1) else { return Place::TooMany };
            left = fewer;
            Place::InForce
        };
        objects.into_iter().map(|(name, object)| (name, object, place(object))).collect()
    }

    fn in_force(&self, most: usize) -> Vec<Arc<RuleEvaluator>> {
        let places = self.places(most).into_iter();
        let in_force = places.filter(|(_, _, place)| *place == Place::InForce);
        in_force.map(|(_, object, _)| Arc::clone(&object.rule)).collect()
    }
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

    /// Takes an event of the watch of them. Returns the rules in force if these are others than before.
    pub fn apply(&self, event: &Event<EvaluatorWire>) -> Option<Vec<Arc<RuleEvaluator>>> {
        let mut changed = None;
        self.objects.send_if_modified(|objects| {
            let before = objects.in_force(self.most);
            let is_news = objects.apply(event);
            let now = objects.in_force(self.most);
            let is_same =
                before.len() == now.len() && before.iter().zip(&now).all(|(a, b)| Arc::ptr_eq(a, b));
            changed = (!is_same).then_some(now);
            is_news
        });
        changed
    }
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
        assert_eq!(names(objects.apply(&Event::Init)), None);
        for (name, day, spec) in
            [("c", 3, charging("example.com/c")), ("b", 2, charging("example.com/b")), ("off", 1, off)]
        {
            assert_eq!(names(objects.apply(&Event::InitApply(wire(name, day, &spec)))), None);
        }
        assert_eq!(names(objects.apply(&Event::InitDone)).unwrap(), ["b", "c"]);
        let apply = |name, day, spec: &Value| names(objects.apply(&Event::Apply(wire(name, day, spec))));
        assert_eq!(apply("d", 4, &charging("example.com/d")), None, "it waits until an older one goes");
        assert_eq!(apply("b", 2, &charging("example.com/b")), None, "nothing of its rule has changed");
        assert_eq!(apply("b", 2, &charging("example.com/other")).unwrap(), ["b", "c"]);
        let gone = names(objects.apply(&Event::Delete(wire("c", 3, &charging("example.com/c")))));
        assert_eq!(gone.unwrap(), ["b", "d"]);
    }

    #[test]
    fn a_list_that_is_read_again_changes_nothing() {
        let objects = EvaluatorObjects::new(2);
        for is_first in [true, false] {
            objects.apply(&Event::Init);
            objects.apply(&Event::InitApply(wire("a", 1, &charging("example.com/a"))));
            assert_eq!(objects.apply(&Event::InitDone).is_some(), is_first);
        }
    }
}
