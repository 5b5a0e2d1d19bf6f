//! Releases that fail, and pods that cannot be read: nothing spins, no room is lost, nothing that runs counts as nothing.

use sluice_index::{PodWire, Targeting};

use super::server::wire;
use super::stories::{Story, at};
use crate::{Action, Answer, Outcome, Release};

/// Plans until a release is asked for; returns it.
fn asked(story: &mut Story, ms: u64) -> Release {
    for _ in 0..10 {
        for action in story.state.plan(at(ms)) {
            match action {
                Action::Record(record) => {
                    let answer = story.server.record(&record);
                    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(ms));
                    story.see_all(at(ms));
                }
                Action::Release(release) => return release,
                Action::ListQuotas(..)
                | Action::CatchUpClusterQuotas
                | Action::ListTargets
                | Action::CatchUp
                | Action::Read(_)
                | Action::ReadRound(_)
                | Action::Evaluate(_)
                | Action::ReadMachine(_) => panic!("there was no other leader, no VM and no evaluator"),
                Action::WriteEvent(_) | Action::Answer(..) => {}
            }
        }
    }
    unreachable!("no release is asked for")
}

fn answer(story: &mut Story, release: Release, answer: Answer<PodWire>, ms: u64) {
    story.state.on_outcome(Outcome::Released(release.pod, release.uid, answer), at(ms));
}

fn refused() -> Answer<PodWire> {
    Answer::Refused("a policy says no".to_owned())
}

#[test]
fn a_pod_whose_release_is_refused_holds_up_no_other() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 600, 1);
    story.server.create_pod("b", 600, 0);
    story.see_all(at(0));
    let release = asked(&mut story, 0);
    assert_eq!(&*release.name, "a");
    answer(&mut story, release, refused(), 0);
    story.run(at(50));
    assert_eq!(story.gated(), ["a"], "b got the room that a could not use");
    assert!(story.told.iter().any(|tell| tell.message.contains("a policy says no")));
}

/// The pods go without a charge there, so nothing of a quota slows them down.
#[test]
fn a_refused_release_is_tried_again_ever_later_where_nothing_is_targeted_any_more_too() {
    let mut story = Story::led();
    story.server.create_pod("a", 400, 0);
    let label = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
        match_labels: Some([("gate".to_owned(), "yes".to_owned())].into()),
        ..Default::default()
    };
    story.state.retarget(Targeting::new(label.try_into().unwrap(), super::own_namespace()), at(0));
    story.see_all(at(0));
    let (mut tries, mut told) = (0, 0);
    for ms in 0..10_000 {
        for action in story.state.plan(at(ms)) {
            match action {
                Action::Release(release) => {
                    tries += 1;
                    answer(&mut story, release, refused(), ms);
                }
                Action::WriteEvent(_) => told += 1,
                Action::ListTargets => story.state.on_outcome(Outcome::TargetsListed, at(ms)),
                Action::Answer(..) => panic!("nothing was asked"),
                other => unreachable!("{other:?}"),
            }
        }
    }
    assert!((4..=8).contains(&tries) && told <= tries, "{tries} tries, told {told} times in 10 s");
}

#[test]
fn room_of_a_release_without_an_answer_is_given_back_once_it_cannot_be_done_any_more() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 600, 1);
    story.server.create_pod("b", 600, 0);
    story.see_all(at(0));
    let release = asked(&mut story, 0);
    answer(&mut story, release, Answer::Unknown("internal error".to_owned()), 0);
    // A refusal proves nothing while the request may still be worked on.
    let release = asked(&mut story, 1000);
    answer(&mut story, release, refused(), 1000);
    assert!(
        story.state.plan(at(1001)).iter().any(|action| matches!(action, Action::WriteEvent(_))),
        "it is told"
    );
    story.see_all(at(1001));
    let again = asked(&mut story, 20_000);
    assert_eq!(&*again.name, "a", "b has no room yet");
    answer(&mut story, again, refused(), 20_000);
    let again = asked(&mut story, 61_000);
    assert_eq!(&*again.name, "a");
    answer(&mut story, again, refused(), 61_000);
    story.run(at(61_050));
    assert_eq!(story.gated(), ["a"], "b got the room that a could not use");
}

/// The pod's release was done, which neither an answer nor the watch of pods shows for long.
#[test]
fn a_release_without_an_answer_stays_charged_until_there_is_one() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 600, 1);
    story.server.create_pod("b", 500, 0);
    story.see_all(at(0));
    let release = asked(&mut story, 0);
    story.server.release(&release);
    answer(&mut story, release, Answer::Unknown("connection lost".to_owned()), 0);
    let mut asked = Vec::new();
    for ms in [1_000, 60_500, 60_600, 61_100, 61_200] {
        if ms == 60_500 {
            let (namespace, _) = story.state.index().1.iter().next().unwrap();
            story.state.reclassify_namespace(namespace, at(ms));
        }
        for action in story.state.plan(at(ms)) {
            match action {
                Action::Record(record) => {
                    let recorded = story.server.record(&record);
                    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, recorded), at(ms));
                    let quota = story.server.quota().unwrap().clone();
                    story.state.apply_watched_quota(&wire(quota), at(ms));
                }
                Action::Release(release) => {
                    asked.push((ms, release.name.to_string()));
                    let busy = || Answer::Busy(Some(std::time::Duration::from_secs(60)));
                    let done = if ms == 1_000 { busy() } else { story.server.release(&release) };
                    answer(&mut story, release, done, ms);
                }
                _ => {}
            }
        }
    }
    assert_eq!(asked, [(1_000, "a".to_owned()), (61_100, "a".to_owned())]);
    assert_eq!(story.server.used(), "600m");
}

#[test]
fn quotas_that_cannot_be_read_are_asked_for_ever_later_and_when_the_server_says() {
    let mut story = Story::led();
    story.server.create_pod("a", 400, 0);
    story.see_all(at(0));
    let mut asked_at = Vec::new();
    for ms in 0..10_000 {
        if ms % 10 == 0 {
            story.server.create_pod(&format!("more-{ms}"), 400, 0);
            story.see_all(at(ms));
        }
        for action in story.state.plan(at(ms)) {
            if let Action::ListQuotas(namespaces) = action {
                asked_at.push(ms);
                let after = (asked_at.len() == 3).then(|| std::time::Duration::from_secs(5));
                let failed =
                    after.map_or_else(|| Answer::Unknown("no".to_owned()), |after| Answer::Busy(Some(after)));
                let namespaces = namespaces.into_iter().map(|(id, _)| id).collect();
                story.state.on_outcome(Outcome::Listed(namespaces, failed), at(ms));
            }
        }
    }
    assert_eq!(asked_at, [0, 100, 300, 5300, 6100, 7700]);
}

#[test]
fn a_quota_that_is_gone_does_not_come_back_with_a_late_list() {
    let mut story = Story::led();
    story.server.create_pod("a", 400, 0);
    story.see_all(at(0));
    let asked = story.state.plan(at(0));
    let [Action::ListQuotas(namespaces)] = &asked[..] else { panic!("one list: {asked:?}") };
    let namespaces = namespaces.iter().map(|(id, _)| *id).collect();
    // The list is made, and then the watch shows the quota, and its end.
    story.server.set_hard(100);
    let late = story.server.quota().unwrap().clone();
    story.see_all(at(10));
    story.server.delete_quota();
    story.see_all(at(20));
    story.state.on_outcome(Outcome::Listed(namespaces, Answer::Done(vec![wire(late)])), at(30));
    story.run(at(40));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn a_running_pod_that_cannot_be_read_keeps_its_place_and_fills_what_cannot_be_read() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 900, 0);
    story.run(at(0));
    let mut resized = story.server.pod("a").clone();
    resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100e39".into();
    resized["metadata"]["resourceVersion"] = "1000000".into();
    story.state.apply_pod(&wire::<PodWire>(resized), at(10));
    story.server.create_pod("b", 100, 0);
    story.run(at(100));
    assert_eq!(story.gated(), ["b"], "what a takes is not known, so there is no room");
    assert_eq!(story.server.used(), "20282409603651670423947251286016n", "the largest amount there is");
    story.server.delete_pod("a");
    story.run(at(200));
    assert_eq!(story.gated(), Vec::<&str>::new(), "it takes nothing with it");
}
