//! Pauses: who waits goes in order and at the rate, whatever room there is, and what is counted is what runs.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::{LONGEST_PAUSE, names};
use sluice_engine::Uid;
use sluice_index::NamespaceWire;

use super::resizes::change;
use super::server::{Kind, key, wire};
use super::step::Trouble;
use super::stories::{Story, at};
use super::team::NAMESPACE;
use super::world::{SHARED, TEAM, World};
use crate::accounts::parts::pauses::Paused;
use crate::{Asked, Judgement, Regarding};

fn annotated(annotations: &Value) -> NamespaceWire {
    let metadata =
        json!({ "name": NAMESPACE, "uid": "n", "resourceVersion": "1", "annotations": annotations });
    wire(json!({ "metadata": metadata }))
}

fn time(second: i64) -> String {
    jiff::Timestamp::from_second(second).unwrap().to_string()
}

/// Of what is paused since the begin of time until this second; `None`: not at all.
fn annotations(until: Option<i64>, rate: u32) -> Value {
    until.map_or_else(|| json!({}), |until| paused(0, &time(until), &rate.to_string()))
}

fn paused(since: i64, until: &str, rate: &str) -> Value {
    json!({
        names::PAUSED_ANNOTATION: until,
        names::PAUSED_SINCE_ANNOTATION: time(since),
        names::PAUSE_RATE_ANNOTATION: rate,
    })
}

fn namespace(until: Option<i64>, rate: u32) -> NamespaceWire {
    annotated(&annotations(until, rate))
}

impl World {
    /// For so many seconds, or not any more. Every process sees it at once: which namespaces are late is no matter here.
    pub fn pause(&mut self, namespace: &str, seconds: i64) {
        let until = (seconds > 0).then_some(self.server.now_s + seconds);
        // At a rate at which pods wait for their turn.
        let annotations =
            until.map_or_else(|| json!({}), |until| paused(self.server.now_s, &time(until), "2"));
        self.server.edit(&key(Kind::Namespace, "", namespace), |object| {
            object["metadata"]["annotations"] = annotations;
        });
        (0..self.replicas.len()).for_each(|replica| self.deliver(replica, Kind::Namespace, usize::MAX));
    }
}

/// A full quota, and ten pods that wait for it, created one a second; it is the tenth second, and the status was written so
/// long ago that it may be written again in the next one.
fn waiting() -> Story {
    let mut story = Story::led();
    story.server.set_hard(100);
    for n in 0..10 {
        story.server.now_s = n;
        story.server.create_pod(&format!("p{n}"), 400, 0);
    }
    story.run(at(9_900));
    assert_eq!(story.gated().len(), 10);
    story
}

/// What the status says, in thousandths of a CPU.
fn used(story: &Story) -> u64 {
    let used = sluice_engine::Quantity::parse(story.server.used()).unwrap();
    u64::try_from(used.nanos() / 1_000_000).unwrap()
}

/// Reason of the condition that the quota does not limit pods.
fn unenforced(story: &Story) -> Option<String> {
    let conditions = story.server.quota()?["status"]["conditions"].as_array()?.clone();
    let enforced = conditions.iter().find(|condition| condition["type"] == names::ENFORCED)?;
    Some(enforced["reason"].as_str()?.to_owned())
}

fn told(story: &Story) -> Vec<&str> {
    let about = |regarding: Regarding| matches!(regarding, Regarding::Namespace | Regarding::Configuration);
    story.told.iter().filter(|tell| about(tell.regarding)).map(|tell| tell.reason).collect()
}

#[test]
fn who_waits_goes_in_order_at_the_rate_and_is_counted() {
    let mut story = waiting();
    story.state.apply_namespace(&namespace(Some(60), 10), at(10_000));
    for gone in 1..=10 {
        // The next one goes a tenth of a second later, and none before.
        let now = 10_000 + 100 * (gone as u64 - 1);
        story.run(at(now));
        story.run(at(now + 99));
        let expected: Vec<_> = (gone..10).map(|n| format!("p{n}")).collect();
        assert_eq!(story.gated(), expected, "{now}");
        assert_eq!((used(&story), story.server.taken()), (400 * gone as u64, 400 * gone as u64));
    }
    assert_eq!(unenforced(&story).as_deref(), Some("Paused"));
    assert_eq!(told(&story), ["Paused"]);
}

#[test]
fn it_ends_by_itself_none_is_evicted_and_who_comes_waits() {
    let mut story = waiting();
    story.state.apply_namespace(&namespace(Some(11), 2), at(10_000));
    story.run(at(10_000));
    story.run(at(10_500));
    assert!(story.state.next_due_ms(at(10_600)).is_some_and(|ms| ms <= 400), "for the end, if nothing else");
    for now in [11_000, 20_000, 40_000] {
        story.run(at(now));
        assert_eq!((story.gated().len(), used(&story), story.server.taken()), (8, 800, 800), "{now}");
    }
    assert_eq!((unenforced(&story), told(&story)), (None, vec!["Paused", "PauseEnded"]));
    // One that is over is none when it is seen again, and one that is taken away ends at once.
    story.state.apply_namespace(&namespace(Some(11), 2), at(41_000));
    story.run(at(41_000));
    assert_eq!(told(&story).len(), 2);
    story.state.apply_namespace(&namespace(Some(60), 500), at(42_000));
    story.run(at(42_000));
    story.state.apply_namespace(&namespace(None, 500), at(42_001));
    story.run(at(45_000));
    assert_eq!((story.gated().len(), story.server.taken()), (7, 1_200));
    assert_eq!(told(&story), ["Paused", "PauseEnded", "Paused", "PauseEnded"]);
}

#[test]
fn what_cannot_be_read_or_is_too_long_is_ignored_and_told() {
    let late = time(LONGEST_PAUSE.as_secs() + 1);
    let day_ms = u64::try_from(LONGEST_PAUSE.as_millis()).unwrap();
    for (wrong, later) in [
        (paused(0, "2h", "1"), 11_000),
        // It is too long however late that is seen.
        (paused(0, &late, "1"), day_ms),
        (paused(80, &time(90), "1"), 11_000),
        (json!({ names::PAUSED_ANNOTATION: time(60) }), 11_000),
        (paused(0, &time(60), "0"), 11_000),
    ] {
        let mut story = waiting();
        for now in [10_000, later] {
            story.state.apply_namespace(&annotated(&wrong), at(now));
            story.run(at(now));
        }
        assert_eq!((story.gated().len(), unenforced(&story)), (10, None), "{wrong}");
        assert_eq!(told(&story), ["PauseIgnored"], "{wrong}");
        let message = &story.told.iter().find(|tell| tell.reason == "PauseIgnored").unwrap().message;
        assert!(message.starts_with("not paused: metadata.annotations[quota.sluice.dev/"), "{message}");
    }
}

#[test]
fn the_configuration_pauses_all_namespaces_and_one_of_its_own_comes_first() {
    let paused = |until: i64, rate: &str| {
        let annotations = serde_json::from_value(paused(0, &time(until), rate)).unwrap();
        Paused::read("aaq", Uid::parse("a"), Some(&annotations), at(10_000))
    };
    let mut story = waiting();
    story.state.pause_all(paused(60, "1"), at(10_000));
    story.run(at(10_000));
    assert_eq!(story.gated().len(), 9);
    // Its own is faster and ends sooner.
    story.state.apply_namespace(&namespace(Some(11), 4), at(10_001));
    for now in (10_001..11_000).step_by(250) {
        story.run(at(now));
    }
    assert_eq!(story.gated().len(), 5);
    for now in [11_000, 11_999] {
        story.run(at(now));
        assert_eq!(story.gated().len(), 4, "that of all namespaces is in force still: {now}");
    }
    assert_eq!(story.state.paused(), (1, 60));
    story.state.pause_all(None, at(12_000));
    story.run(at(20_000));
    assert_eq!((story.gated().len(), story.state.paused()), (4, (0, 0)));
    assert_eq!(used(&story), story.server.taken());
}

#[test]
fn what_runs_may_have_more_and_a_quota_that_cannot_be_understood_holds_nobody() {
    let mut story = waiting();
    story.state.apply_namespace(&namespace(Some(60), 500), at(10_000));
    story.run(at(10_000));
    let grown = change(story.server.pod("p0").clone(), 900);
    let asked = story.state.ask(&grown, at(10_100));
    let Asked::Recording(ticket) = asked else { panic!("{asked:?}") };
    story.run(at(10_100));
    story.run(at(10_200));
    assert_eq!(story.answered, [(ticket, Judgement::Allowed)]);
    assert!(used(&story) >= 900, "{}", used(&story));
    let quota = json!({
        "metadata": { "name": "q", "namespace": NAMESPACE, "uid": "q", "resourceVersion": "900" },
        "spec": { "hard": { "cpu": "much" } },
    });
    story.state.apply_watched_quota(&wire(quota), at(10_500));
    for now in 10_500..10_600 {
        story.run(at(now));
    }
    assert_eq!(story.gated(), Vec::<&str>::new());
    story.server.create_pod("late", 1, 0);
    story.run(at(61_000));
    assert_eq!(story.gated(), ["late"], "it does afterwards");
}

#[test]
fn where_no_quota_can_be_understood_pods_have_their_turn_too() {
    let mut story = Story::led();
    let unclear = json!({ "metadata": {}, "spec": { "hard": { "cpu": "much" } } });
    story.server.put(&key(Kind::Quota, NAMESPACE, "q"), unclear);
    for n in 0..4 {
        story.server.create_pod(&format!("p{n}"), 400, 0);
    }
    story.run(at(9_000));
    assert_eq!(story.gated().len(), 4);
    story.state.apply_namespace(&namespace(Some(60), 1), at(10_000));
    for gone in 1..=4 {
        let now = 9_000 + 1_000 * gone as u64;
        story.run(at(now));
        story.run(at(now + 999));
        assert_eq!(story.gated().len(), 4 - gone, "{now}");
    }
}

#[test]
fn who_waits_no_more_is_in_no_line_though_nobody_leads() {
    let mut story = Story::begin();
    story.server.set_hard(100);
    story.state.apply_namespace(&namespace(Some(3_600), 1), at(0));
    for n in 0..6 {
        let name = format!("p{n}");
        story.server.create_pod(&name, 400, 0);
        story.see_all(at(0));
        assert_eq!(story.state.in_line(), 1, "{name}");
        if n % 2 == 0 {
            story.server.delete_pod(&name);
        } else {
            story.server.ungate_pod(&name);
        }
        story.see_all(at(0));
        assert_eq!(story.state.in_line(), 0, "{name}");
    }
}

#[test]
fn what_fits_goes_at_once_and_who_leads_next_goes_on() {
    let mut story = Story::begin();
    story.server.set_hard(1_000);
    story.state.apply_namespace(&namespace(Some(60), 1), at(0));
    for n in 0..4 {
        story.server.create_pod(&format!("fits{n}"), 100, 0);
    }
    story.server.create_pod("large", 5_000, 0);
    story.see_all(at(0));
    assert!(story.state.plan(at(0)).is_empty(), "it does not lead");
    story.state.lead(at(1));
    for now in [1, 2_000] {
        story.run(at(now));
    }
    assert_eq!((story.gated(), story.server.taken()), (Vec::new(), 5_400));
    assert_eq!(told(&story), ["Paused"]);
}

proptest! {

    /// However processes crash, requests get lost and pauses come and go: afterwards the account is the sum of the pods, and
    /// who comes waits.
    #[test]
    fn it_settles_whatever_is_paused(steps in super::protocol::steps(&TEAM, Trouble::Pauses)) {
        super::protocol::run(&TEAM, Trouble::Pauses, &steps);
    }

    /// The same of namespaces that share a quota.
    #[test]
    fn a_shared_quota_settles_whatever_is_paused(steps in super::protocol::steps(&SHARED, Trouble::Pauses)) {
        super::protocol::run(&SHARED, Trouble::Pauses, &steps);
    }
}
