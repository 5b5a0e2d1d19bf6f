//! What pods are told: the newest reason, seldom enough, and none is forgotten.

use std::collections::BTreeMap;

use sluice_index::{Aaqs, Watched as _};
use sluice_runtime::watch::Event;

use super::stories::{Story, at};
use crate::targeting::{report_released, targeting};
use crate::{Action, Outcome, Regarding};

/// A quota that has no room for as many pods, each with a charge of its own.
fn crowd(waiting: u64) -> Story {
    let mut story = Story::led();
    story.server.set_hard(1_200);
    story.server.create_pod("small", 1_000, 0);
    story.run(at(0));
    for n in 0..waiting {
        story.server.create_pod(&format!("w{n}"), 500 + n, 0);
    }
    story.run(at(70_100));
    story
}

fn told(story: &Story) -> BTreeMap<&str, Vec<&str>> {
    let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for tell in story.told.iter().filter(|tell| tell.name.starts_with('w')) {
        told.entry(&tell.name).or_default().push(&tell.message);
    }
    told
}

#[test]
fn a_flood_of_changes_is_no_flood_of_events_and_the_last_word_is_the_newest() {
    let mut story = Story::led();
    story.server.set_hard(10_000);
    story.server.create_pod("small", 1_000, 0);
    story.run(at(0));
    story.server.create_pod("huge", 10_000, 9);
    story.run(at(0));
    story.server.set_hard(1_200);
    for n in 0..100 {
        story.server.create_pod(&format!("w{n}"), 500 + n, 0);
    }
    story.run(at(70_100));
    let begin = 100;
    for second in begin..begin + 600 {
        // An edit brings room, which is kept for a pod that has waited longer, and the next one takes it away.
        story.server.set_hard(10_000);
        story.run(at(second * 1000));
        story.server.set_hard(1_200);
        story.run(at(second * 1000 + 500));
    }
    let numbers: Vec<usize> = told(&story).values().map(Vec::len).collect();
    assert_eq!(numbers.len(), 100);
    assert!(numbers.iter().all(|times| (3..=8).contains(times)), "in ten minutes: {numbers:?}");
    for second in (700..1200).step_by(50) {
        story.run(at(second * 1000));
    }
    for (name, messages) in told(&story) {
        let last = messages.last().unwrap();
        assert!(last.ends_with("limited: requests.cpu=1200m"), "{name} was told last: {last}");
    }
}

#[test]
fn few_events_are_under_way_at_a_time_and_one_that_failed_is_written_later() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    for n in 0..10 {
        story.server.create_pod(&format!("w{n}"), 2000, 0);
    }
    story.see_all(at(0));
    let tells = |story: &mut Story, ms| -> Vec<_> {
        let actions = story.state.plan(at(ms)).into_iter();
        actions
            .filter_map(|action| if let Action::WriteEvent(tell) = action { Some(tell) } else { None })
            .collect()
    };
    let first = tells(&mut story, 0);
    assert_eq!(first.len(), 4);
    assert_eq!(tells(&mut story, 1), [], "not before one of them was answered");
    let failed = first[0].clone();
    for tell in first {
        let is_written = tell != failed;
        story.state.on_outcome(Outcome::EventWritten(tell, is_written), at(2));
    }
    let mut names = Vec::new();
    for ms in [2, 3, 1500] {
        for tell in tells(&mut story, ms) {
            names.push(tell.name.to_string());
            story.state.on_outcome(Outcome::EventWritten(tell, true), at(ms));
        }
    }
    assert_eq!(names.len(), 7, "the other six, and the one that failed: {names:?}");
    assert_eq!(names[6], *failed.name);
}

#[test]
fn the_same_words_are_said_again_before_the_event_is_dropped() {
    let mut story = crowd(1);
    for minute in 2..=60 {
        story.run(at(minute * 60_000 + 200));
    }
    let told = told(&story);
    let [first, second] = told["w0"][..] else { panic!("{told:?}") };
    assert_eq!(first, second, "once more half an hour later");
}

#[test]
fn a_new_leader_tells_pods_that_were_stuck_before() {
    let mut story = Story::begin();
    let quota = serde_json::json!({
        "metadata": {"name": "q", "namespace": "team", "uid": "q", "resourceVersion": "1"},
        "spec": {"hard": {"cpu": "much"}},
    });
    story.state.apply_watched_quota(&super::server::wire(quota), at(0));
    story.server.create_pod("w", 100, 0);
    story.see_all(at(0));
    assert!(story.state.plan(at(0)).is_empty(), "it does not lead");
    story.state.lead(at(1));
    story.run(at(1));
    let [tell] = story.told.as_slice() else { panic!("{:?}", story.told) };
    assert!(matches!(tell.regarding, Regarding::Pod(_)) && tell.reason == "InvalidQuota", "{tell:?}");
}

#[test]
fn pods_that_go_because_their_namespace_is_not_targeted_any_more_are_told_on_the_configuration() {
    let mut story = crowd(3);
    let mut known = Aaqs::default();
    let metadata =
        serde_json::json!({"name": "aaq", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let selector = serde_json::json!({"matchLabels": {"team": "none"}});
    let aaq = serde_json::json!({"metadata": metadata, "spec": {"namespaceSelector": selector}});
    known.apply(&Event::Apply(super::server::wire(aaq)));
    let released = story.state.retarget(targeting(&known, &super::own_namespace()), at(71_000));
    report_released(&mut story.state, &known, released);
    story.run(at(71_000));
    let tell = story.told.iter().find(|tell| tell.regarding == Regarding::Configuration).unwrap();
    assert!(tell.message.contains(": 3 pods that waited there"), "{tell:?}");
    assert_eq!(story.gated(), Vec::<&str>::new());
}

/// A pod that cannot go, for a quota of its namespace cannot be understood.
fn stuck(story: &mut Story, namespace: &str, name: &str) {
    use super::server::wire;
    let metadata = |name: &str| {
        serde_json::json!({
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1",
        })
    };
    let quota = serde_json::json!({"metadata": metadata("q"), "spec": {"hard": {"cpu": "much"}}});
    story.state.apply_watched_quota(&wire(quota), at(0));
    let gates = serde_json::json!([{"name": super::server::GATE}]);
    let pod =
        serde_json::json!({"metadata": metadata(name), "spec": {"schedulingGates": gates, "containers": []}});
    story.state.apply_pod(&wire(pod), at(0));
}

#[test]
fn a_crowd_in_one_namespace_and_one_without_events_delay_no_other() {
    let mut story = Story::led();
    for name in ["crowd", "refusing", "small"] {
        let namespace = serde_json::json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}});
        story.state.apply_namespace(&super::server::wire(namespace), at(0));
    }
    for n in 0..300 {
        stuck(&mut story, "crowd", &format!("c{n}"));
        stuck(&mut story, "refusing", &format!("r{n}"));
    }
    stuck(&mut story, "small", "s");
    let (mut tried, mut until_small) = (0, None);
    for ms in 0..2_000 {
        for action in story.state.plan(at(ms)) {
            let Action::WriteEvent(tell) = action else { continue };
            if &*tell.name == "s" {
                until_small = Some(ms);
            }
            let is_written = &*tell.namespace != "refusing";
            tried += u32::from(!is_written);
            story.state.on_outcome(Outcome::EventWritten(tell, is_written), at(ms));
        }
    }
    assert!(until_small.is_some_and(|ms| ms < 10), "{until_small:?}");
    assert!((1..=8).contains(&tried), "{tried} events where none is taken");
}

#[test]
fn an_event_of_the_configuration_that_failed_is_written_later() {
    let mut story = Story::led();
    story.state.announce_configuration("aaq", sluice_engine::Uid::parse("u"), "words".to_owned());
    let mut written = Vec::new();
    for ms in [0, 1, 500, 1_100, 2_000] {
        for action in story.state.plan(at(ms)) {
            let Action::WriteEvent(tell) = action else { panic!("{action:?}") };
            written.push(ms);
            story.state.on_outcome(Outcome::EventWritten(tell, ms > 1_000), at(ms));
        }
    }
    assert_eq!(written, [0, 1_100]);
}

#[test]
fn events_of_pods_and_of_the_configuration_take_turns_four_at_a_time() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    for n in 0..10 {
        story.server.create_pod(&format!("w{n}"), 2000, 0);
        story.state.announce_configuration("aaq", sluice_engine::Uid::parse("u"), format!("words {n}"));
    }
    story.see_all(at(0));
    let mut under_way = Vec::new();
    let mut told = Vec::new();
    for ms in 0..30 {
        let actions = story.state.plan(at(ms)).into_iter();
        under_way.extend(
            actions
                .filter_map(|action| if let Action::WriteEvent(tell) = action { Some(tell) } else { None }),
        );
        assert!(under_way.len() <= 4, "{}", under_way.len());
        let Some(tell) = under_way.pop() else { break };
        told.push(tell.regarding == Regarding::Configuration);
        story.state.on_outcome(Outcome::EventWritten(tell, true), at(ms));
    }
    assert_eq!(told.len(), 20);
    let early = told.iter().take(10).filter(|is_announced| **is_announced).count();
    assert!((3..=7).contains(&early), "of the first ten {early} are about the configuration");
}

#[test]
fn a_pod_that_is_more_than_the_whole_quota_is_told_the_field_to_change_as_long_as_it_is() {
    let mut story = Story::led();
    story.server.set_hard(1_000);
    story.server.create_pod("small", 500, 0);
    story.run(at(0));
    story.server.create_pod("huge", 2_000, 0);
    story.run(at(10));
    let words = "exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=500m, limited: requests.cpu=1";
    let remedy = "the pod alone is more than the whole quota and can never be released: raise spec.hard[requests.cpu] of \
        the quota, or change the template of the pod's controller and delete the pod";
    assert_eq!(story.told_of("huge"), [("ExceedsLimit", format!("{words}; {remedy}").as_str())]);
    // It would fit without the other one now.
    story.server.set_hard(2_200);
    story.run(at(20_000));
    let [_, (reason, message)] = story.told_of("huge")[..] else { panic!("{:?}", story.told) };
    assert_eq!(reason, "QuotaExceeded");
    assert!(message.ends_with("limited: requests.cpu=2200m"), "{message}");
}

#[test]
fn a_held_pod_is_told_that_the_claims_of_its_ephemeral_volumes_count_already() {
    use super::server::{GATE, wire};
    use super::team::NAMESPACE;
    let mut story = Story::led();
    story.server.set_hard(1_000);
    story.run(at(0));
    let pod = |name: &str, volumes: serde_json::Value| {
        let requests = serde_json::json!({"requests": {"cpu": "2"}});
        let metadata =
            serde_json::json!({"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "900"});
        let gates = serde_json::json!([{"name": GATE}]);
        let containers = serde_json::json!([{"name": "c", "resources": requests}]);
        serde_json::json!({
            "metadata": metadata,
            "spec": {"schedulingGates": gates, "containers": containers, "volumes": volumes},
        })
    };
    let ephemeral = serde_json::json!([{"name": "a", "emptyDir": {}}, {"name": "b", "ephemeral": {}}]);
    story.state.apply_pod(&wire(pod("claiming", ephemeral)), at(1));
    story.state.apply_pod(&wire(pod("plain", serde_json::json!([{"name": "a", "emptyDir": {}}]))), at(1));
    story.state.apply_pod(&wire(pod("bare", serde_json::Value::Null)), at(1));
    story.run(at(10));
    let told = |name: &str| story.told_of(name).first().map(|(_, message)| message.contains("ephemeral"));
    assert_eq!(["claiming", "plain", "bare"].map(told), [Some(true), Some(false), Some(false)]);
}
