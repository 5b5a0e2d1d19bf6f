//! Another client that writes what is the controller's to write.

use serde_json::json;

use super::server::wire;
use super::stories::{Story, at};
use super::team;
use crate::{Action, Answer, GateEvent, Outcome, RecordedObject, Regarding};

fn of_quotas(story: &Story) -> Vec<&GateEvent> {
    story.told.iter().filter(|tell| matches!(tell.regarding, Regarding::Quota(_))).collect()
}

/// Another writes the status, under this name.
fn overwrite(story: &mut Story, used: u64, manager: &str) {
    story.server.scribble_status(used);
    let quota = story.server.log.last_mut().unwrap();
    quota.object["metadata"]["managedFields"] = json!([
        {"manager": "sluice-controller", "subresource": "status", "time": "2026-01-01T00:00:01Z"},
        {"manager": "kubectl", "time": "2026-01-01T00:00:03Z"},
        {"manager": manager, "subresource": "status", "time": "2026-01-01T00:00:02Z"},
    ]);
}

/// Lets another overwrite each write within 10 ms, for so long; returns the number of writes.
fn fight(story: &mut Story, from_ms: u64, to_ms: u64) -> usize {
    let mut writes = 0;
    for ms in (from_ms..to_ms).step_by(10) {
        for action in story.state.plan(at(ms)) {
            match action {
                Action::Record(record) => {
                    writes += 1;
                    let answer = story.server.record(&record);
                    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(ms));
                    overwrite(story, 777, "aaq-controller");
                }
                Action::WriteEvent(tell) => story.told.push(tell),
                other => unreachable!("{other:?}"),
            }
        }
        story.see_all(at(ms + 5));
    }
    writes
}

#[test]
fn another_writer_of_the_status_is_named_and_answered_ever_more_slowly() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.see_all(at(0));
    let first = fight(&mut story, 0, 10_000);
    assert!((4..=10).contains(&first), "{first} writes in the first ten seconds");
    let later = fight(&mut story, 10_000, 600_000);
    assert!((5..=20).contains(&later), "{later} writes in the ten minutes after");
    let told = of_quotas(&story);
    assert!((2..=5).contains(&told.len()), "{told:?}");
    assert!(
        told.iter().all(|tell| tell.reason == "StatusContested" && tell.message.contains("aaq-controller"))
    );
    // It ends, and what is right comes back.
    story.run(at(700_000));
    assert_ne!(story.server.used(), "777m");
    // What is edited long after that is put right at once again.
    story.server.create_pod("a", 100, 0);
    for ms in [1_400_000, 1_400_100] {
        story.run(at(ms));
        overwrite(&mut story, 777, "kubectl");
    }
    story.run(at(1_400_200));
    assert_ne!(story.server.used(), "777m");
}

#[test]
fn a_status_that_was_edited_once_is_put_right_at_once_and_nothing_is_told() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.see_all(at(0));
    story.run(at(0));
    overwrite(&mut story, 777, "kubectl");
    story.run(at(100));
    assert_ne!(story.server.used(), "777m");
    assert_eq!(of_quotas(&story), Vec::<&GateEvent>::new());
}

#[test]
fn pods_are_released_while_another_writes_the_status() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.see_all(at(0));
    fight(&mut story, 0, 300_000);
    story.server.create_pod("a", 100, 0);
    for ms in [300_000, 301_500, 303_000] {
        story.run(at(ms));
        overwrite(&mut story, 777, "aaq-controller");
    }
    assert_eq!(story.gated(), Vec::<&str>::new());
}

/// The CustomResourceDefinition is older than the controller, so the API server drops fields that it does not know.
#[test]
fn a_status_that_is_not_stored_as_it_is_written_is_written_ever_more_slowly() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.see_all(at(0));
    let mut writes = 0;
    for ms in (0..60_000).step_by(10) {
        for action in story.state.plan(at(ms)) {
            match action {
                Action::Record(record) => {
                    writes += 1;
                    story.server.record(&record);
                    let mut quota = story.server.quota().unwrap().clone();
                    quota["status"].as_object_mut().unwrap().remove("requests");
                    let answer = Answer::Done(RecordedObject::Quota(wire(quota)));
                    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(ms));
                }
                Action::WriteEvent(tell) => story.told.push(tell),
                other => unreachable!("{other:?}"),
            }
        }
    }
    assert!((4..=15).contains(&writes), "{writes} writes in a minute");
    let told = of_quotas(&story);
    assert!(!told.is_empty() && told.len() <= 3, "{told:?}");
    assert!(told.iter().all(|tell| tell.message.starts_with("the status is not stored as it is written")));
}

/// The store was restored from a backup: what is known is of the future.
#[test]
fn a_conflict_with_something_older_is_tried_again_ever_later() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.run(at(0));
    story.run(at(100));
    story.server.objects.get_mut(&team::quota()).unwrap()["metadata"]["resourceVersion"] = json!("1");
    story.server.create_pod("a", 100, 0);
    story.see_all(at(200));
    let mut conflicts = 0;
    for ms in 200..2_200 {
        for action in story.state.plan(at(ms)) {
            if let Action::Record(record) = action {
                conflicts += 1;
                let answer = story.server.record(&record);
                assert!(matches!(answer, Answer::Stale(Some(_))), "{answer:?}");
                story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(ms));
            }
        }
    }
    assert!((3..=8).contains(&conflicts), "{conflicts} conflicts in two seconds");
}

#[test]
fn a_gate_that_another_removed_is_told_on_the_quota() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("large", 2000, 0);
    story.run(at(0));
    story.server.ungate_pod("large");
    story.run(at(1000));
    let told = of_quotas(&story);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].reason == "GateRemoved" && told[0].message.contains("pod large "), "{told:?}");
}

#[test]
fn a_release_by_a_predecessor_is_no_contest() {
    let mut story = Story::begin();
    story.server.set_hard(1000);
    story.server.scribble_status(800);
    story.server.create_pod("a", 800, 0);
    story.see_all(at(0));
    story.state.lead(at(0));
    story.run(at(0));
    story.server.ungate_pod("a");
    story.run(at(1000));
    assert_eq!(of_quotas(&story), Vec::<&GateEvent>::new());
}
