//! VMs that are to have more and are charged by what their pods take:
//! what the next pod will take is charged before it is there.

use rstest::rstest;
use sluice_engine::vm::{Calculator, KubeVirtFacts};
use sluice_index::VmiWire;

use super::machine_growth::of_version;
use super::machines::sized;
use super::owners::kubevirt;
use super::stories::{Story, at};
use crate::cluster::machines::KubeVirt;
use crate::{Asked, Judgement, MachineChange};

const SOURCE: &str = "v1-p1";
const TARGET: &str = "v1-p2";

fn running(calculator: Calculator, hard: u64) -> Story {
    let mut story = Story::counting(calculator, hard);
    story.see_machine(&of_version(sized(2, 2), 10), 0);
    story.server.create_pod(SOURCE, 200, 0);
    assert_eq!(story.used_after(0), "200m");
    story
}

/// Asks for so many CPUs, and does all that comes of it.
fn grow(story: &mut Story, before: &VmiWire, cpus: u32, now: u64) -> Judgement {
    let after = of_version(sized(2, cpus), 10);
    match story.state.ask_about_machine(&MachineChange::read(before, &after, false), at(now)) {
        Asked::Judged(judgement) => judgement,
        Asked::Recording(ticket) => {
            story.run(at(now + 5));
            let answered = story.answered.iter().find(|(answered, _)| *answered == ticket);
            answered.expect("an answer").1.clone()
        }
    }
}

fn before() -> VmiWire {
    of_version(sized(2, 2), 10)
}

#[rstest]
#[case(Calculator::VmiPodUsage)]
#[case(Calculator::GuestEffectiveResources)]
fn it_is_charged_once_from_the_answer_to_the_last_pod(#[case] calculator: Calculator) {
    let mut story = running(calculator, 400);
    assert_eq!(grow(&mut story, &before(), 4, 100), Judgement::Allowed);
    assert_eq!(story.used_after(100), "400m", "nothing of it is seen");
    story.server.create_pod("web", 100, 0);
    story.see_machine(&of_version(sized(2, 4), 11), 200);
    assert_eq!(story.used_after(200), "400m", "its pod is not there");
    story.server.create_pod(TARGET, 400, 0);
    assert_eq!(story.used_after(300), "400m");
    assert_eq!(story.held(), ["web"], "it brings what is charged");
    story.server.finish_pod(SOURCE);
    assert_eq!(story.used_after(400), "400m", "the status does not say so yet");
    story.see_machine(&of_version(sized(4, 4), 12), 500);
    assert_eq!(story.used_after(500), "400m");
    story.see_machine(&of_version(sized(4, 1), 13), 600);
    assert_eq!(story.used_after(600), "400m");
    story.server.create_pod("v1-p3", 100, 0);
    story.run(at(700));
    story.server.finish_pod(TARGET);
    story.see_machine(&of_version(sized(1, 1), 14), 700);
    assert_eq!(story.used_after(700), "200m", "and the room is free");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[rstest]
#[case(Calculator::VmiPodUsage)]
#[case(Calculator::GuestEffectiveResources)]
fn what_does_not_fit_is_refused_before_there_is_a_pod_that_would_wait(#[case] calculator: Calculator) {
    let mut story = running(calculator, 399);
    let words = "exceeded quota: compute, requested: requests.cpu=200m, used: requests.cpu=200m, limited: requests.cpu=399m";
    assert_eq!(grow(&mut story, &before(), 4, 100), Judgement::Refused(words.to_owned()));
    assert_eq!(story.used_after(200), "200m");
    assert_eq!(grow(&mut story, &before(), 3, 300), Judgement::Allowed);
    assert_eq!(story.used_after(400), "300m");
}

/// A new leader knows nothing but what there is.
#[test]
fn a_successor_finds_the_same_charge() {
    for pods in [&[(SOURCE, 200)][..], &[(SOURCE, 200), (TARGET, 400)], &[(TARGET, 400)]] {
        let mut story = Story::counting(Calculator::VmiPodUsage, 1000);
        story.see_machine(&of_version(sized(2, 4), 11), 0);
        for (pod, size) in pods {
            story.server.create_pod(pod, *size, 0);
            story.server.ungate_pod(pod);
        }
        assert_eq!(story.used_after(0), "400m", "{pods:?}");
    }
}

/// It has listed everything, and has appraised no VM yet: until then two pods of one take more than is recorded for it.
#[test]
fn a_successor_keeps_all_room_that_its_predecessor_has_given_away() {
    let mut story = Story::begin();
    story.server.set_hard(500);
    for pod in [SOURCE, TARGET] {
        story.server.create_pod(pod, 200, 0);
        story.server.ungate_pod(pod);
    }
    story.server.create_pod("theirs", 200, 1);
    story.server.create_pod("ours", 200, 0);
    story.server.scribble_status(400);
    story.state.set_kubevirt(Some(kubevirt()), at(0));
    story.state.count_machines_by(Calculator::VmiPodUsage, at(0));
    story.see_machine(&of_version(sized(2, 2), 10), 0);
    story.see_all(at(0));
    story.state.lead(at(0));
    assert_eq!(story.used_after(0), "400m");
    assert_eq!(story.held(), ["ours", "theirs"], "one of them may be under way");
    story.server.ungate_pod("theirs");
    assert_eq!(story.used_after(10), "400m");
    assert_eq!(story.held(), ["ours"]);
}

#[test]
fn without_a_pod_it_is_not_known_what_the_next_one_takes() {
    let mut story = Story::counting(Calculator::VmiPodUsage, 1000);
    story.see_machine(&before(), 0);
    story.run(at(0));
    let undecided = Judgement::Undecided("no pod of the VM runs yet".into());
    assert_eq!(grow(&mut story, &before(), 4, 100), undecided);
    assert_eq!(grow(&mut story, &before(), 1, 200), Judgement::Allowed, "less is allowed");
    story.server.create_pod(SOURCE, 200, 0);
    story.run(at(250));
    assert_eq!(grow(&mut story, &before(), 4, 300), Judgement::Allowed);
    assert_eq!(story.used_after(400), "400m");
}

#[test]
fn what_the_next_pod_takes_beyond_what_was_admitted_waits() {
    let mut story = running(Calculator::VmiPodUsage, 400);
    assert_eq!(grow(&mut story, &before(), 4, 100), Judgement::Allowed);
    story.see_machine(&of_version(sized(2, 4), 11), 200);
    story.server.create_pod(TARGET, 450, 0);
    assert_eq!(story.used_after(300), "400m");
    assert_eq!(story.held(), [TARGET]);
    story.server.set_hard(450);
    assert_eq!(story.used_after(400), "450m");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn what_was_admitted_stays_charged_when_kubevirt_is_configured_otherwise() {
    let mut story = running(Calculator::VmiPodUsage, 1000);
    assert_eq!(grow(&mut story, &before(), 4, 100), Judgement::Allowed);
    let ratio = |ratio| {
        let facts = KubeVirtFacts { cpu_allocation_ratio: Some(ratio), ..KubeVirtFacts::default() };
        Some(KubeVirt { facts, ..kubevirt() })
    };
    story.state.set_kubevirt(ratio(20), at(200));
    assert_eq!(story.used_after(200), "400m");
    story.see_machine(&of_version(sized(2, 4), 11), 300);
    assert_eq!(story.used_after(300), "200m", "the next pod takes no more than this one");
    story.state.set_kubevirt(ratio(5), at(400));
    assert_eq!(story.used_after(400), "800m");
}
