//! When something is done about an `AAQ` itself, and what is left to others.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sluice_api::names;
use tokio::time::Instant;

use super::super::act::Act;
use super::super::apply::Target;
use super::super::existence::{Failures, plan};
use super::super::finalizer::later;
use super::super::observe::World;
use super::super::wire::{AaqWire, MtqWire, Orders as _};
use super::existence::{ALWAYS, LATE, at, done, there};
use super::world;

/// It may be at work, and has removals of its own to do.
#[test]
fn a_finalizer_of_another_operator_is_left_to_it_for_a_minute() {
    let object = |manager: &str, finalizer: &str| {
        let mut metadata = super::metadata("one", 0);
        let item = format!("v:\"{finalizer}\"");
        let fields = json!({ "f:metadata": { "f:finalizers": { item: {} } } });
        metadata["finalizers"] = json!([finalizer]);
        metadata["deletionTimestamp"] = json!("2026-02-01T00:00:00Z");
        metadata["managedFields"] =
            json!([{ "manager": manager, "operation": "Update", "fieldsV1": fields }]);
        json!({ "metadata": metadata })
    };
    let early = at("2026-02-01T00:00:59Z");
    let acts = |world: &World, now| (plan(world, false, now).len(), later(world, now));
    let aaq = |manager: &str| {
        let order = serde_json::from_value::<AaqWire>(object(manager, names::FINALIZER)).unwrap().order();
        World { mode: ALWAYS, aaqs: Some([("one".to_owned(), order)].into()), ..world() }
    };
    let mtq =
        serde_json::from_value::<MtqWire>(object("mtq-operator", names::MTQ_FINALIZER)).unwrap().order();
    let of_mtq = World { mtqs: Some([("one".to_owned(), mtq)].into()), ..there(ALWAYS, &[("aaq", "")]) };
    for of_others in [aaq("aaq-operator"), of_mtq] {
        assert_eq!(acts(&of_others, early), (0, Some(Duration::from_secs(1))));
        assert_eq!(acts(&of_others, at(LATE)), (1, None));
    }
    assert_eq!(acts(&aaq(names::OPERATOR), early), (1, None), "it is ours");
    assert_eq!(acts(&there(ALWAYS, &[("aaq", "going")]), early), (0, None), "it has none");
}

/// What pauses is said by the `AAQ` that holds.
#[test]
fn a_pause_goes_over_to_the_aaq_that_holds() {
    let pause = |until: &str| -> BTreeMap<String, String> {
        let pairs =
            [(names::PAUSED_ANNOTATION, until), (names::PAUSED_SINCE_ANNOTATION, "2026-02-01T00:00:00Z")];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    };
    let paused = |own: &str, theirs: Option<&str>| {
        let mut world = there(ALWAYS, &[("aaq", "own"), ("theirs", "")]);
        let all = world.aaqs.as_mut().unwrap();
        all.get_mut("aaq").unwrap().pause = pause(own);
        if let Some(theirs) = theirs {
            all.get_mut("theirs").unwrap().pause = pause(theirs);
        }
        world
    };
    let lasts = "2026-02-01T02:00:00Z";
    assert_eq!(done(&paused(lasts, None)), ["pause theirs 2"]);
    assert_eq!(done(&paused(lasts, Some("2026-02-01T01:00:00Z"))), ["take back uid-aaq"], "it has its own");
    assert_eq!(done(&paused(lasts, Some(lasts))), ["take back uid-aaq"], "it is carried over");
    assert_eq!(done(&paused("2026-02-01T00:00:30Z", None)), ["take back uid-aaq"], "it is over");
    let acts = plan(&paused(lasts, None), true, at(LATE));
    let event = acts.iter().find_map(Act::event).unwrap();
    assert_eq!(event.regarding.name.as_deref(), Some("theirs"));
    assert!(event.note.contains(lasts), "{}", event.note);
    assert!(Act::Make.event().is_none());
}

#[test]
fn what_has_failed_is_not_sent_again_at_the_next_change() {
    let start = Instant::now();
    let act = |version: &str| Act::Finalizers {
        target: Target::Aaq("aaq".to_owned()),
        resource_version: version.to_owned(),
        finalizers: Vec::new(),
    };
    let mut failures = Failures::default();
    assert_eq!(failures.held(&act("1"), start), None);
    let due = failures.failed(&act("1"), start);
    assert!(due > start);
    assert_eq!(failures.held(&act("2"), start), Some(due), "whatever the version");
    assert_eq!(failures.held(&Act::Make, start), None);
    assert_eq!(failures.held(&act("2"), due), None);
    failures.done(&act("2"));
    assert_eq!(failures.held(&act("2"), start), None);
}
