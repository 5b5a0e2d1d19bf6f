//! `Evaluator`s: which rules are in force, how sidecars are asked, and what is said of that in their status.

mod in_force;
mod status;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::{EvaluatorMode, EvaluatorSpec, EvaluatorStatus};
use sluice_evaluators::{Limits, RuleEvaluator, SidecarPolicy, check_examples};
use sluice_gate::{MOST_EVALUATORS, MOST_SHADOWS};
use sluice_index::{EvaluatorWire, Stated};
use sluice_runtime::watch::Event;
use tokio::sync::watch;

pub use in_force::{Changed, InForce, Shadowed};

#[derive(Clone, Debug)]
struct Object {
    created: Option<Timestamp>,
    spec: Value,
    kind: Kind,
    /// Whether the rule says of its examples what they say; `None`: it has none, or cannot be used.
    consistent: Option<Result<(), Arc<str>>>,
    /// `None`: its status cannot be read, so nothing is said of it.
    stated: Option<Arc<Stated<EvaluatorStatus>>>,
}

#[derive(Clone, Debug)]
enum Kind {
    Rule(Arc<RuleEvaluator>),
    /// It says how the sidecar of its name is asked.
    Policy(Arc<SidecarPolicy>),
}

impl Kind {
    /// Why it cannot be used.
    fn fault(&self) -> Option<&str> {
        match self {
            Self::Rule(rule) => rule.fault(),
            Self::Policy(policy) => policy.fault(),
        }
    }
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
    /// A list was read: who has no object has none.
    are_all_known: bool,
    /// How many changes of the evaluators in force there have been.
    changes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InForce,
    /// It is evaluated, and charged nowhere.
    Shadow,
    /// It is switched off.
    Off,
    /// As many older ones as there may be are in force.
    TooMany,
    /// As many older ones as there may be are in the shadow.
    TooManyShadows,
    /// There is no sidecar of its name.
    NoSidecar,
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
                self.are_all_known = true;
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
        let (kind, consistent) = same.map_or_else(
            || read_spec(&name, &wire.spec),
            |known| (known.kind.clone(), known.consistent.clone()),
        );
        let created = wire.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let stated = Stated::of(&wire.metadata, wire.status.as_ref());
        Some((name, Object { created, spec: wire.spec.clone(), kind, consistent, stated }))
    }

    /// What each is, by age: the eldest are in force, so that a new one takes no other's place. A policy takes none, for its
    /// sidecar has one.
    fn places(&self, sidecars: &[Arc<str>], most_rules: usize) -> Vec<(&Arc<str>, &Object, Place)> {
        let mut objects: Vec<_> = self.known.iter().collect();
        objects.sort_by_key(|(name, object)| (object.created, *name));
        let (mut left, mut shadows_left) = (most_rules, MOST_SHADOWS);
        let mut place = |name: &Arc<str>, object: &Object| {
            let is_policy = matches!(object.kind, Kind::Policy(_));
            let (left, place, too_many) = match object.mode() {
                // Its container does not run either.
                EvaluatorMode::Off => return Place::Off,
                _ if is_policy && !sidecars.contains(name) => return Place::NoSidecar,
                EvaluatorMode::Enforce if is_policy => return Place::InForce,
                EvaluatorMode::Enforce => (&mut left, Place::InForce, Place::TooMany),
                EvaluatorMode::Shadow => (&mut shadows_left, Place::Shadow, Place::TooManyShadows),
            };
            let Some(fewer) = left.checked_sub(1) else { return too_many };
            *left = fewer;
            place
        };
        objects.into_iter().map(|(name, object)| (name, object, place(name, object))).collect()
    }
}

/// What it is, and whether it says of its examples what they say.
fn read_spec(name: &str, spec: &Value) -> (Kind, Option<Result<(), Arc<str>>>) {
    if SidecarPolicy::is_one(spec) {
        return (Kind::Policy(Arc::new(SidecarPolicy::read(spec))), None);
    }
    let rule = RuleEvaluator::read(name, spec);
    let examples = EvaluatorSpec::deserialize(spec).map(|spec| spec.examples).unwrap_or_default();
    let is_said = !examples.is_empty() && rule.fault().is_none();
    let consistent =
        is_said.then(|| check_examples(&rule, &examples).map_err(|error| error.to_string().into()));
    (Kind::Rule(Arc::new(rule)), consistent)
}

/// All `Evaluator`s of a cluster.
#[derive(Debug)]
pub struct EvaluatorObjects {
    /// The sidecars that are configured, by their places.
    sidecars: Vec<Arc<str>>,
    /// So many of them, the first ones, are asked without an object of their name too.
    without_object: usize,
    /// Most rules that are in force at a time.
    most_rules: usize,
    objects: watch::Sender<Objects>,
}

impl EvaluatorObjects {
    /// None is known yet, so no sidecar is asked. The first `without_object` sidecars are asked without an object too.
    /// Beside all of them as many rules are in force as there may be evaluators.
    #[must_use]
    pub fn new(sidecars: Vec<Arc<str>>, without_object: usize) -> Self {
        let most_rules = MOST_EVALUATORS.saturating_sub(sidecars.len());
        Self { sidecars, without_object, most_rules, objects: watch::Sender::default() }
    }

    /// None is known yet. At most so many rules are in force, and nothing is known of sidecars.
    #[must_use]
    pub fn of_rules(most_rules: usize) -> Self {
        Self { sidecars: Vec::new(), without_object: 0, most_rules, objects: watch::Sender::default() }
    }

    #[must_use]
    pub fn in_force(&self) -> InForce {
        self.of(&self.objects.borrow()).0
    }

    fn of(&self, objects: &Objects) -> (InForce, Vec<Shadowed>) {
        InForce::of(objects, (&self.sidecars, self.without_object), self.most_rules)
    }

    /// How each sidecar is to be limited, by its place.
    #[must_use]
    pub fn limits(&self) -> Vec<Limits> {
        let objects = self.objects.borrow();
        let of = |name: &Arc<str>| match objects.known.get(name).map(|object| &object.kind) {
            Some(Kind::Policy(policy)) => policy.limits(),
            _ => Limits::default(),
        };
        self.sidecars.iter().map(of).collect()
    }

    /// Takes an event of the watch of them. Returns what is other than before.
    pub fn apply(&self, event: &Event<EvaluatorWire>) -> Changed {
        let mut changed = Changed::default();
        self.objects.send_if_modified(|objects| {
            let before = self.of(objects);
            let is_news = objects.apply(event);
            changed = Changed::between(before, self.of(objects));
            objects.changes += u64::from(changed.enforced.is_some());
            changed.number = objects.changes;
            is_news
        });
        changed
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test stops at the first thing that is not as it must be"
    )]

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

    fn names(in_force: Option<InForce>) -> Option<Vec<String>> {
        Some(in_force?.rules.iter().map(|rule| rule.name().to_string()).collect())
    }

    #[test]
    fn rules_are_in_force_by_age_and_not_before_their_list_is_complete() {
        let objects = EvaluatorObjects::of_rules(2);
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
        let objects = EvaluatorObjects::of_rules(2);
        for is_first in [true, false] {
            objects.apply(&Event::Init);
            objects.apply(&Event::InitApply(wire("a", 1, &charging("example.com/a"))));
            assert_eq!(objects.apply(&Event::InitDone).enforced.is_some(), is_first);
        }
    }

    #[test]
    fn a_rule_in_the_shadow_takes_no_place_of_others_and_changes_nothing_of_them() {
        let objects = EvaluatorObjects::of_rules(1);
        objects.apply(&Event::Init);
        objects.apply(&Event::InitApply(wire("a", 9, &charging("example.com/a"))));
        objects.apply(&Event::InitDone);
        let mut shadow = charging("example.com/b");
        shadow["mode"] = "Shadow".into();
        for day in 1..=5 {
            let Changed { enforced, shadow, .. } =
                objects.apply(&Event::Apply(wire(&format!("shadow-{day}"), day, &shadow)));
            assert_eq!(names(enforced), None);
            assert_eq!(shadow.is_some(), day <= 4, "no more than {MOST_SHADOWS} are evaluated");
        }
        let Changed { enforced, shadow, .. } =
            objects.apply(&Event::Apply(wire("shadow-1", 1, &charging("example.com/b"))));
        assert_eq!(names(enforced).unwrap(), ["shadow-1"], "it is older");
        let shadow: Vec<_> = shadow.unwrap().iter().map(|it| it.name().to_string()).collect();
        assert_eq!(shadow, ["shadow-2", "shadow-3", "shadow-4", "shadow-5"]);
    }

    /// Until all objects are known, one that is switched off would be asked.
    #[test]
    fn no_sidecar_is_asked_before_it_is_known_how() {
        let objects = EvaluatorObjects::new(vec!["a".into(), "b".into()], 2);
        let asked = |in_force: &InForce| in_force.sidecars.iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(asked(&objects.in_force()), [false, false]);
        assert!(objects.apply(&Event::Init).enforced.is_none());
        let off = wire("a", 1, &json!({"mode": "Off", "sidecar": {}}));
        assert!(objects.apply(&Event::InitApply(off)).enforced.is_none());
        let in_force = objects.apply(&Event::InitDone).enforced.unwrap();
        assert_eq!(asked(&in_force), [false, true]);
        objects.apply(&Event::Init);
        assert_eq!(asked(&objects.in_force()), [false, true], "what is read again is known");
    }

    /// Its container runs until the operator has taken it away: meanwhile it must not be asked about all pods.
    #[test]
    fn a_sidecar_that_an_object_names_is_asked_while_the_object_is_there() {
        let objects = EvaluatorObjects::new(vec!["a".into(), "b".into()], 1);
        let asked = |in_force: &InForce| in_force.sidecars.iter().map(Option::is_some).collect::<Vec<_>>();
        objects.apply(&Event::Init);
        assert_eq!(asked(&objects.apply(&Event::InitDone).enforced.unwrap()), [true, false]);
        let policy = wire("b", 1, &json!({"sidecar": {"image": "i"}}));
        assert_eq!(asked(&objects.apply(&Event::Apply(policy.clone())).enforced.unwrap()), [true, true]);
        assert_eq!(asked(&objects.apply(&Event::Delete(policy)).enforced.unwrap()), [true, false]);
        let rule = objects.apply(&Event::Apply(wire("b", 1, &charging("example.com/b")))).enforced.unwrap();
        assert_eq!((rule.rules.len(), asked(&rule)), (1, vec![true, false]));
    }

    #[test]
    fn a_policy_is_of_the_sidecar_of_its_name_and_other_limits_ask_nothing_again() {
        let objects = EvaluatorObjects::new(vec!["a".into(), "b".into()], 2);
        objects.apply(&Event::Init);
        assert!(objects.apply(&Event::InitDone).enforced.is_some());
        let by_default = objects.in_force();
        assert!(by_default.sidecars.iter().all(|it| it.as_deref() == Some(&SidecarPolicy::default())));
        let written = |name, spec: &Value| objects.apply(&Event::Apply(wire(name, 1, spec)));
        assert!(written("other", &json!({"sidecar": {}})).enforced.is_none(), "there is no such sidecar");
        let place_of = |name: &str| {
            let known = objects.objects.borrow();
            let places = known.places(&objects.sidecars, objects.most_rules);
            places.iter().find(|(known, ..)| ***known == *name).map(|(.., place)| *place)
        };
        assert_eq!(place_of("other"), Some(Place::NoSidecar));
        written("switched-off", &json!({"mode": "Off", "sidecar": {"image": "i"}}));
        assert_eq!(place_of("switched-off"), Some(Place::Off), "its container does not run either");
        assert!(written("b", &json!({"sidecar": {}})).enforced.is_none(), "it says nothing");
        let limited = json!({"sidecar": {"timeout": "2s", "concurrency": 9}});
        assert!(written("b", &limited).enforced.is_none());
        let told: Vec<_> = objects.limits().iter().map(|it| (it.timeout.as_secs(), it.concurrency)).collect();
        assert_eq!(told, [(1, 4), (2, 9)]);
        let asked = |changed: Changed| -> Vec<Option<bool>> {
            let sidecars = changed.enforced.unwrap().sidecars;
            sidecars.iter().map(|it| it.as_ref().map(|it| **it == SidecarPolicy::default())).collect()
        };
        assert_eq!(asked(written("b", &json!({"revision": "2", "sidecar": {}}))), [Some(true), Some(false)]);
        assert_eq!(asked(written("b", &json!({"mode": "Off", "sidecar": {}}))), [Some(true), None]);
        let shadow = written("b", &json!({"mode": "Shadow", "sidecar": {}}));
        assert!(shadow.enforced.is_none(), "it is not asked as before");
        let [Shadowed::Sidecar(name, 1, _)] = &shadow.shadow.unwrap()[..] else { panic!() };
        assert_eq!(**name, *"b");
        // A rule of a sidecar's name is a rule, and the sidecar is asked as without an object.
        let rule = written("b", &charging("example.com/b")).enforced.unwrap();
        assert_eq!(names(Some(rule.clone())).unwrap(), ["b"]);
        assert_eq!(rule.sidecars, by_default.sidecars);
        let gone = objects.apply(&Event::Delete(wire("b", 1, &json!({})))).enforced.unwrap();
        assert_eq!((names(Some(gone.clone())).unwrap().len(), gone.sidecars), (0, by_default.sidecars));
    }
}
