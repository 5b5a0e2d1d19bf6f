//! Which `AAQ` there is, what installs, and when an `AAQ` that is deleted may go.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::Installation;
use tokio::time::Instant;

use super::super::act::Act;
use super::super::apply::Target;
use super::super::existence::{Absence, is_withheld, plan};
use super::super::kind::{Kind, Operand};
use super::super::left_out::LeftOut;
use super::super::live::Live;
use super::super::observe::{Operands, World};
use super::super::state::Troubles;
use super::super::wire::{AaqWire, MtqWire, Order, Orders as _};
use super::super::{InstallationSettings, operands, phase_events, status};
use super::{VERSION, aaq, asking, mtq, options, world};
use crate::presence::{Presence, Removal};

/// An `AAQ`, by words: `own` has the operator's label, `asks` has a field, `going` is being deleted, `held` has the
/// finalizer.
fn order(name: &str, second: u32, words: &str) -> Order {
    let is = |word: &str| words.split(' ').any(|one| one == word);
    let mut metadata = super::metadata(name, second);
    if is("own") {
        metadata["labels"] = json!({ names::MADE_BY_LABEL: names::MADE_BY_OPERATOR });
    }
    if is("going") {
        metadata["deletionTimestamp"] = json!("2026-02-01T00:00:00Z");
    }
    if is("held") {
        metadata["finalizers"] = json!(["example.com/other", names::FINALIZER]);
    }
    let spec = if is("asks") { json!({ "namespaceSelector": {} }) } else { json!({}) };
    let status = if is("said") { json!({ "phase": "Deleted" }) } else { Value::Null };
    let object = json!({ "metadata": metadata, "spec": spec, "status": status });
    serde_json::from_value::<AaqWire>(object).unwrap().order()
}

/// With these `AAQ`s, the first of them the oldest.
pub(super) fn there(mode: Installation, aaqs: &[(&str, &str)]) -> World {
    let orders =
        (0..).zip(aaqs).map(|(second, (name, words))| ((*name).to_owned(), order(name, second, words)));
    World { mode, aaqs: Some(orders.collect()), ..world() }
}

fn settings() -> InstallationSettings {
    InstallationSettings::new(options(), Some(VERSION.own))
}

/// What is done, in short.
pub(super) fn done(world: &World) -> Vec<String> {
    let said = |act: Act| match act {
        Act::Make => "make".to_owned(),
        Act::TakeBack { uid, .. } => format!("take back {uid}"),
        Act::Pause { name, annotations, .. } => format!("pause {name} {}", annotations.len()),
        Act::Finalizers { target, finalizers, .. } => format!("{target} {}", finalizers.join("+")),
    };
    plan(world, true, at(LATE)).into_iter().map(said).collect()
}

/// Another operator, too, has had time to take its finalizer away.
pub(super) const LATE: &str = "2026-02-01T00:01:00Z";

pub(super) fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

pub(super) const ALWAYS: Installation = Installation::Always;
const CR: Installation = Installation::Cr;

#[test]
fn there_is_one_of_the_operator_until_there_is_another() {
    let none: [&str; 0] = [];
    for (aaqs, expected) in [
        (vec![], vec!["make"]),
        (vec![("aaq", "own")], vec![]),
        (vec![("aaq", "")], vec![]),
        (vec![("aaq", "own"), ("theirs", "")], vec!["take back uid-aaq"]),
        (vec![("theirs", ""), ("aaq", "own")], vec!["take back uid-aaq"]),
        // Somebody has edited it: it is theirs, and the other is one too many.
        (vec![("aaq", "own asks"), ("theirs", "")], vec![]),
        // A copy of it under another name is nobody's but the user's.
        (vec![("copy", "own"), ("theirs", "")], vec![]),
        // It is done already, or there is nothing to make room for.
        (vec![("aaq", "own going"), ("theirs", "")], vec![]),
        (vec![("aaq", "own"), ("theirs", "going")], vec![]),
        // Its name is taken until it is gone.
        (vec![("aaq", "going")], vec![]),
    ] {
        assert_eq!(done(&there(ALWAYS, &aaqs)), expected, "{aaqs:?}");
    }
    let unknown = World { aaqs: None, ..world() };
    assert_eq!(done(&unknown), none, "they were not looked for");
    assert_eq!(done(&there(CR, &[])), none, "it would install");
    assert_eq!(plan(&there(ALWAYS, &[]), false, at(LATE)), [], "one may just be replaced");
}

#[test]
fn none_is_made_where_another_operator_may_take_it_as_an_order() {
    for (kept_by_others, is_told) in [(None, false), (Some(true), true)] {
        let world = World { is_kind_of_others: kept_by_others, ..there(ALWAYS, &[]) };
        assert_eq!(done(&world), Vec::<String>::new(), "{kept_by_others:?}");
        assert_eq!(is_withheld(&world), is_told, "{kept_by_others:?}");
    }
    let of_others = |world: World| is_withheld(&World { is_kind_of_others: Some(true), ..world });
    assert!(!of_others(there(ALWAYS, &[("theirs", "")])) && !of_others(there(CR, &[])));
}

#[test]
fn where_the_aaq_installs_there_are_no_operands_without_one() {
    let writes = |mode, aaqs: &[(&str, &str)]| {
        operands::plan(&there(mode, aaqs), &options(), VERSION, &LeftOut::default()).writes.len()
    };
    for (aaqs, by_aaq) in [(vec![], 0), (vec![("aaq", "")], 11), (vec![("aaq", "held going")], 0)] {
        assert_eq!(writes(CR, &aaqs), by_aaq, "{aaqs:?}");
        assert_eq!(writes(ALWAYS, &aaqs), 11, "{aaqs:?}");
    }
    let unknown = World { aaqs: None, mode: CR, ..world() };
    assert_eq!(operands::plan(&unknown, &options(), VERSION, &LeftOut::default()), operands::Plan::default());
}

/// What another client has deleted is told; what the operator has removed with an `AAQ` is made as if for the first time.
#[test]
fn what_was_removed_with_the_aaq_is_not_contested() {
    let mut all = Operands::default();
    for is_removed in [false, true] {
        all.put("one".to_owned(), Live::default());
        all.take("one", is_removed);
        let mut world = there(CR, &[("aaq", "")]);
        world.operands.insert(Kind::Service, all.clone());
        assert_eq!(world.times_gone(&Operand::new(Kind::Service, "one")), u64::from(!is_removed));
    }
}

#[test]
fn a_foreign_aaq_holds_before_that_of_the_operator_however_young() {
    let world = there(ALWAYS, &[("aaq", "own"), ("theirs", "asks")]);
    assert_eq!(world.aaq().unwrap().name, "theirs");
    assert_eq!(world.users_aaq().unwrap().name, "theirs");
    let alone = there(ALWAYS, &[("aaq", "own")]);
    assert_eq!(alone.aaq().unwrap().name, "aaq");
    assert!(alone.users_aaq().is_none(), "an MTQ is asked beside it");
}

#[test]
fn one_is_made_after_a_pause_also_at_the_start() {
    let start = Instant::now();
    let after = |seconds: u64| start + Duration::from_secs(seconds);
    let (none, one) = (there(ALWAYS, &[]), there(ALWAYS, &[("aaq", "")]));
    let mut absence = Absence::default();
    assert_eq!(absence.look(&World { aaqs: None, ..world() }, start), None);
    assert_eq!(absence.look(&none, after(1)), Some(after(11)), "one may just be replaced");
    assert_eq!(absence.look(&one, after(2)), None);
    for seconds in [3, 5] {
        assert_eq!(absence.look(&none, after(seconds)), Some(after(13)), "ten seconds after it went");
    }
    assert_eq!(absence.look(&one, after(6)), None, "it was replaced");
    assert_eq!(absence.look(&none, after(7)), Some(after(17)));
}

#[test]
fn the_aaq_installs_where_it_is_to() {
    let leaving = |name: &str| Presence::Leaving(format!("uid-{name}"));
    for (aaqs, expected) in [
        (vec![], Presence::Absent),
        (vec![("aaq", "")], Presence::Installed),
        (vec![("aaq", "own")], Presence::Installed),
        (vec![("aaq", "going")], leaving("aaq")),
        (vec![("aaq", "going"), ("b", "")], Presence::Installed),
        (vec![("b", "going"), ("aaq", "going")], leaving("b")),
    ] {
        assert_eq!(there(CR, &aaqs).presence(), expected, "{aaqs:?}");
        assert_eq!(there(ALWAYS, &aaqs).presence(), Presence::Installed, "{aaqs:?}");
    }
    let unknown = World { aaqs: None, mode: CR, ..world() };
    assert_eq!(unknown.presence(), Presence::Unknown);
    assert_eq!(World { mode: ALWAYS, ..unknown }.presence(), Presence::Installed);
}

#[test]
fn the_finalizer_is_there_where_the_aaq_installs_and_goes_after_all_else() {
    let added = [format!("aaqs/aaq {}", names::FINALIZER)];
    let taken = ["aaqs/aaq example.com/other".to_owned()];
    let none: [String; 0] = [];
    assert_eq!(done(&there(CR, &[("aaq", "")])), added);
    assert_eq!(done(&there(CR, &[("aaq", "held")])), none);
    assert_eq!(done(&there(CR, &[("aaq", "held"), ("second", "")])), none, "only that which holds");
    assert_eq!(done(&there(ALWAYS, &[("aaq", "")])), none);
    assert_eq!(done(&there(ALWAYS, &[("aaq", "held")])), none, "it harms nothing before the deletion");
    // What another operator has left, or this one before its flag was changed.
    assert_eq!(done(&there(ALWAYS, &[("aaq", "held going")])), taken);
    assert_eq!(done(&there(ALWAYS, &[("aaq", "going")])), none);

    let mut leaving = there(CR, &[("aaq", "held going said")]);
    assert_eq!(done(&leaving), none, "nothing is known of the removal");
    let of = Presence::Leaving("uid-aaq".to_owned());
    leaving.removal = Removal { of: of.clone(), left: Some("1 pods".to_owned()), has_begun: true };
    assert_eq!(done(&leaving), none, "something is left");
    for stale in [Presence::Absent, Presence::Installed, Presence::Leaving("uid-before".to_owned())] {
        leaving.removal = Removal { of: stale, left: None, has_begun: true };
        assert_eq!(done(&leaving), none, "it was found for another reason");
    }
    leaving.removal = Removal { of, left: None, has_begun: true };
    assert_eq!(done(&leaving), taken);
    let unsaid = World { removal: leaving.removal, ..there(CR, &[("aaq", "held going")]) };
    assert_eq!(done(&unsaid), none, "the phase is said first");
    let another = there(CR, &[("aaq", "held going"), ("b", "held")]);
    assert_eq!(done(&another), taken, "what is installed is the other's by now");
}

#[test]
fn that_of_an_mtq_is_only_taken_away() {
    let object = |deleted: Value| {
        let mut metadata = super::metadata("mtq", 0);
        metadata["finalizers"] = json!([names::MTQ_FINALIZER]);
        metadata["deletionTimestamp"] = deleted;
        serde_json::from_value::<MtqWire>(json!({ "metadata": metadata })).unwrap().order()
    };
    for mode in [ALWAYS, CR] {
        let mut world = there(mode, &[("aaq", "held")]);
        for (deleted, expected) in
            [(Value::Null, vec![]), (json!("2026-02-01T00:00:00Z"), vec!["mtqs/mtq ".to_owned()])]
        {
            world.mtqs = Some([("mtq".to_owned(), object(deleted))].into());
            assert_eq!(done(&world), expected);
        }
        world.mtqs = Some([("mtq".to_owned(), mtq("mtq", &json!({})))].into());
        assert_eq!(done(&world), Vec::<String>::new());
    }
}

/// Of all objects: name, phase, and what is said of Available with its reason.
fn told(world: &World) -> String {
    let writes = status::plan(world, &Troubles::default(), &settings(), Timestamp::UNIX_EPOCH);
    let said = writes.iter().map(|write| {
        let status = &write.body["status"];
        let conditions = status["conditions"].as_array().unwrap();
        let available = conditions.iter().find(|said| said["type"] == names::AVAILABLE).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}: {} {}: {}\n",
            write.target,
            text(&status["phase"]),
            text(&available["status"]),
            text(&available["reason"]),
            text(&available["message"])
        )
    });
    said.collect()
}

#[test]
fn what_is_said_while_it_goes_and_where_nothing_is_installed() {
    let mut leaving = there(CR, &[("aaq", "held going")]);
    leaving.mtqs = Some([("mtq".to_owned(), mtq("mtq", &json!({})))].into());
    let mut all = vec![told(&leaving)];
    let of = Presence::Leaving("uid-aaq".to_owned());
    let left = Some("3 pods behind the gate".to_owned());
    leaving.removal = Removal { of: of.clone(), left, has_begun: true };
    all.push(told(&leaving));
    leaving.removal = Removal { of, left: None, has_begun: true };
    all.push(told(&leaving));
    insta::assert_snapshot!(all.join("\n"), @"
    aaqs/aaq Deleting: False DeleteStarted: what was installed is being removed
    mtqs/mtq Deploying: False NotInstalled: nothing is installed, for the AAQ installs here (--installation=cr): create one

    aaqs/aaq Deleting: False DeleteStarted: what was installed is being removed: 3 pods behind the gate
    mtqs/mtq Deploying: False NotInstalled: nothing is installed, for the AAQ installs here (--installation=cr): create one

    aaqs/aaq Deleted: False DeleteCompleted: all that was installed is removed
    mtqs/mtq Deploying: False NotInstalled: nothing is installed, for the AAQ installs here (--installation=cr): create one
    ");
}

#[test]
fn of_the_operators_own_nothing_is_said_beside_another() {
    let said = told(&there(ALWAYS, &[("aaq", "own"), ("theirs", "asks")]));
    assert!(said.starts_with("aaqs/theirs Deploying: ") && !said.contains("Error"), "{said}");
    let said = told(&there(ALWAYS, &[("aaq", "own asks"), ("theirs", "asks")]));
    assert!(said.contains("aaqs/theirs Error: False ConfigError: the AAQ aaq is older"), "{said}");
}

/// What an `MTQ` asks holds beside an `AAQ` of the operator, and not beside a user's.
#[test]
fn the_mtq_holds_where_there_is_no_aaq_of_a_user() {
    let pulls = json!({ "imagePullPolicy": "Always" });
    let written = |aaqs: &[(&str, &str)]| {
        let mut world = there(ALWAYS, aaqs);
        world.mtqs = Some([("mtq".to_owned(), mtq("mtq", &pulls))].into());
        let writes = operands::plan(&world, &options(), VERSION, &LeftOut::default()).writes;
        let pod = writes.last().unwrap().body.pointer("/spec/template/spec/containers/0").unwrap();
        let pulled = pod["imagePullPolicy"].as_str().unwrap().to_owned();
        let statuses = status::plan(&world, &Troubles::default(), &settings(), Timestamp::UNIX_EPOCH);
        let of_mtq = statuses.iter().find(|write| write.target == Target::Mtq("mtq".to_owned())).unwrap();
        let conditions = of_mtq.body["status"]["conditions"].as_array().unwrap();
        let said = conditions.iter().find(|said| said["type"] == names::FIELDS_NOT_IN_FORCE).unwrap();
        (pulled, said["message"].as_str().unwrap().to_owned())
    };
    let in_force = "every field that is set is in force".to_owned();
    assert_eq!(written(&[]), ("Always".to_owned(), in_force.clone()));
    assert_eq!(written(&[("aaq", "own")]), ("Always".to_owned(), in_force));
    let held = "spec.imagePullPolicy: that of the AAQ aaq holds".to_owned();
    assert_eq!(written(&[("aaq", "")]), ("IfNotPresent".to_owned(), held));
}

#[test]
fn each_change_of_the_phase_is_one_event() {
    let events = |before: &str, second: bool| {
        let status =
            json!({ "phase": before, "observedVersion": if before.is_empty() { "" } else { VERSION.own } });
        let mut world = asking(&json!({}));
        let mut all = BTreeMap::from([("aaq".to_owned(), aaq("aaq", 9, &json!({}), &status))]);
        if second {
            all.insert("first".to_owned(), aaq("first", 1, &json!({}), &Value::Null));
        }
        world.aaqs = Some(all);
        let writes = status::plan(&world, &Troubles::default(), &settings(), Timestamp::UNIX_EPOCH);
        let of_aaq = writes.iter().filter(|write| write.target == Target::Aaq("aaq".to_owned()));
        let events = of_aaq.filter_map(|write| phase_events::of(&world, write));
        let said = events.map(|event| {
            assert_eq!(event.regarding.uid.as_deref(), Some("uid-aaq"));
            format!("{:?} {}: {}", event.type_, event.reason, event.note)
        });
        said.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(events("", false), "Normal DeployStarted: Started Deployment");
    assert_eq!(events("Deploying", false), "Normal DeployCompleted: Deployment Completed");
    assert_eq!(events("Deployed", false), "", "the phase stays");
    let second = "Warning ConfigError: Reconciling to error state, unwanted AAQ object";
    assert_eq!(events("", true), second);
    assert_eq!(events("Error", true), "");
}
