//! Where evaluators are sent the other pods of the namespace: pods are asked about in rounds.

use super::evaluations::{failure, outcome, price};
use super::evaluator::config_with_others;
use super::server::is_gated;
use super::step::Fault;
use super::stories::{Story, at};
use crate::{Action, Evaluate, NotRead, Outcome, ReadRound, Release};

impl Story {
    pub(super) fn in_rounds() -> Self {
        let mut story = Self::led();
        story.state.follow_evaluators(Some(config_with_others()), at(0));
        story.server.set_hard(1000);
        story.run(at(0));
        story
    }

    /// Answers whatever is asked until nothing is, in steps of 100 ms, and returns the names of whom was asked about.
    pub(super) fn answer_all(&mut self, milli_cpu: i128, from: u64) -> Vec<String> {
        let mut names = Vec::new();
        for step in 0..30 {
            let now = from + step * 100;
            for question in self.questions(now) {
                names.push(question.name.to_string());
                self.state.on_outcome(outcome(&question, price(milli_cpu)), at(now));
            }
            self.questions(now);
        }
        names
    }

    /// The namespaces that are to be read now.
    fn reads(&mut self, now: u64) -> Vec<ReadRound> {
        self.see_all(at(now));
        let mut reads = Vec::new();
        for action in self.state.plan(at(now)) {
            match action {
                Action::ReadRound(read) => reads.push(read),
                action => self.act(action, at(now)),
            }
        }
        reads
    }

    /// What is asked and sent now, without answers to either.
    fn planned(&mut self, now: u64) -> (Vec<Evaluate>, Vec<Release>) {
        let (mut asked, mut sent) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            self.see_all(at(now));
            for action in self.state.plan(at(now)) {
                match action {
                    Action::Evaluate(question) => asked.push(*question),
                    Action::Release(release) => sent.push(release),
                    action => self.act(action, at(now)),
                }
            }
        }
        (asked, sent)
    }
}

fn names(asked: &[Evaluate]) -> Vec<&str> {
    let mut names: Vec<&str> = asked.iter().map(|question| &*question.name).collect();
    names.sort_unstable();
    names
}

#[test]
fn pods_that_came_together_are_asked_about_by_one_state() {
    let mut story = Story::in_rounds();
    story.server.create_pod("a", 100, 0);
    story.server.create_pod("b", 100, 0);
    let asked = story.questions(0);
    let rounds: Vec<_> = asked.iter().map(|question| question.round.clone().unwrap()).collect();
    assert_eq!((names(&asked), rounds[0].number), (vec!["a", "b"], rounds[1].number));
    assert!(rounds[0].version >= 2, "the state is no older than the pods: {rounds:?}");
    story.state.on_outcome(outcome(&asked[0], price(400)), at(10));
    assert_eq!(story.planned(10).1.len(), 0, "nothing goes before the round has ended");
    story.state.on_outcome(outcome(&asked[1], price(400)), at(10));
    story.answer_all(400, 10);
    assert_eq!((story.gated(), story.server.used()), (vec![], "800m"));
}

/// The rule may be that the first pod of a namespace is free.
#[test]
fn the_next_is_asked_about_by_a_state_that_shows_who_was_let_go() {
    let mut story = Story::in_rounds();
    story.server.create_pod("first", 100, 0);
    let question = story.question(0);
    story.state.on_outcome(outcome(&question, price(0)), at(10));
    let (_, sent) = story.planned(10);
    let [release] = &sent[..] else { panic!("{sent:?}") };
    story.server.create_pod("second", 100, 0);
    let (asked, sent) = story.planned(500);
    assert_eq!((asked.len(), sent.len()), (0, 0), "the release is under way, and no state shows it yet");
    let done = story.server.outcome(&Action::Release(release.clone()), Fault::None);
    story.state.on_outcome(done, at(510));
    let (asked, _) = story.planned(510);
    let question = asked.iter().find(|question| *question.name == *"second").unwrap();
    let first = story.server.pods().find(|(name, _)| *name == "first").unwrap().1;
    let version: u64 = first["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(!is_gated(first) && question.round.clone().unwrap().version >= version);
}

#[test]
fn who_waits_is_asked_about_again_when_another_pod_changes_and_is_charged_what_is_said_then() {
    let mut story = Story::in_rounds();
    story.server.create_pod("runs", 100, 0);
    assert_eq!(story.answer_all(900, 0).first().map(|name| &**name), Some("runs"));
    story.server.create_pod("waits", 100, 0);
    let asked = story.answer_all(900, 5_000);
    assert_eq!((story.gated(), asked.iter().filter(|name| *name == "waits").count()), (vec!["waits"], 1));
    let quiet = story.questions(60_000);
    assert_eq!(names(&quiet), Vec::<&str>::new(), "nothing has changed");
    story.relabel("runs");
    let asked = story.questions(61_000);
    assert_eq!(names(&asked), ["runs", "waits"]);
    assert_eq!(story.gated(), ["waits"], "{:?}", story.told);
    let told = story.told.len();
    for question in asked {
        let said = if *question.name == *"waits" { price(100) } else { price(900) };
        story.state.on_outcome(outcome(&question, said), at(61_010));
    }
    story.questions(61_020);
    assert_eq!((story.gated(), story.server.used()), (vec![], "1"));
    assert_eq!(story.told.len(), told, "a question that is asked again is nothing to tell");
}

#[test]
fn what_is_not_answered_again_holds_no_more() {
    let mut story = Story::in_rounds();
    story.server.create_pod("runs", 100, 0);
    story.answer_all(900, 0);
    story.server.create_pod("waits", 100, 0);
    story.answer_all(900, 5_000);
    story.server.finish_pod("runs");
    for question in story.questions(60_000) {
        story.state.on_outcome(outcome(&question, failure()), at(60_010));
    }
    story.questions(60_020);
    assert_eq!(story.gated(), ["waits"], "there is room, and its evaluator has not said what it takes now");
    for question in story.questions(62_100) {
        story.state.on_outcome(outcome(&question, failure()), at(62_110));
    }
    story.questions(62_120);
    assert!(
        story.told.iter().any(|event| event.message.contains("did not answer in 1 s")),
        "{:?}",
        story.told
    );
    let asked = story.answer_all(900, 70_000);
    assert_eq!((&*asked[0], story.gated()), ("waits", vec![]));
}

/// Pods that run are asked about for a tenth of the time: their charges follow later.
#[test]
fn who_runs_is_asked_about_for_a_tenth_of_the_time() {
    let mut story = Story::in_rounds();
    story.server.create_pod("a", 100, 0);
    story.server.create_pod("b", 100, 0);
    story.answer_all(100, 0);
    let mut asked_at = Vec::new();
    let mut now = 10_000;
    while now < 20_000 {
        story.relabel_as("a", now);
        let asked = story.questions(now);
        asked_at.extend(asked.iter().filter(|question| *question.name == *"b").map(|_| now));
        // Each round takes 50 ms.
        now += if asked.is_empty() { 10 } else { 50 };
        for question in asked {
            story.state.on_outcome(outcome(&question, price(100)), at(now));
        }
    }
    let least = asked_at.windows(2).map(|two| two[1] - two[0]).min().unwrap();
    assert!(least >= 450 && (10..=25).contains(&asked_at.len()), "{least} {asked_at:?}");
}

#[test]
fn a_new_leader_lets_nothing_go_by_what_was_said_before_it_led() {
    let mut story = Story::begin();
    story.state.follow_evaluators(Some(config_with_others()), at(0));
    story.server.set_hard(1000);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.state.on_outcome(outcome(&question, price(0)), at(10));
    assert_eq!(story.questions(20).len(), 0);
    story.state.lead(at(60_000));
    let (asked, sent) = story.planned(60_000);
    assert_eq!((names(&asked), sent.len()), (vec!["a"], 0), "its predecessor may have released others");
    story.state.on_outcome(outcome(&asked[0], price(0)), at(60_010));
    story.questions(60_020);
    story.questions(120_000);
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn what_waits_for_a_round_goes_when_there_are_none_any_more() {
    let mut story = Story::in_rounds();
    story.server.create_pod("a", 100, 0);
    story.server.create_pod("b", 100, 0);
    let asked = story.questions(0);
    story.state.on_outcome(outcome(&asked[0], price(100)), at(0));
    // The round is under way while the pod is decided on.
    assert_eq!(story.planned(0).1.len(), 0);
    story.state.follow_evaluators(Some(super::evaluator::config()), at(10));
    for pod in ["a", "b"] {
        // It is read anew by this configuration.
        story.server.touch_pod(pod);
    }
    for question in story.questions(20) {
        assert!(question.round.is_none());
        story.state.on_outcome(outcome(&question, price(100)), at(30));
    }
    story.questions(40);
    assert_eq!((story.gated(), story.server.used()), (vec![], "200m"));
}

/// However long rounds take and whatever changes meanwhile, what is decided goes between two of them.
#[test]
fn what_is_decided_goes_between_rounds_that_never_rest() {
    let mut story = Story::in_rounds();
    story.server.create_pod("changes", 100, 0);
    story.answer_all(150, 0);
    for name in ["a", "b", "c", "d", "e"] {
        story.server.create_pod(name, 100, 0);
    }
    let mut now = 10_000;
    while !story.gated().is_empty() {
        assert!(now < 40_000, "{:?}", story.gated());
        for question in story.questions(now) {
            story.relabel_as("changes", now);
            now += 400;
            story.state.on_outcome(outcome(&question, price(150)), at(now));
        }
        now += 20;
    }
}

#[test]
fn a_namespace_that_cannot_be_read_is_held_and_told_and_is_read_again() {
    let mut story = Story::in_rounds();
    story.server.create_pod("a", 100, 0);
    let not_read = |are_too_many| NotRead { text: "the pods cannot be sent".into(), are_too_many };
    for (now, are_too_many) in [(0, false), (2_000, true), (30_000, true)] {
        let reads = story.reads(now);
        let [read] = &reads[..] else { panic!("{now}: {reads:?}") };
        let outcome = Outcome::RoundRead(read.namespace, read.round.number, Err(not_read(are_too_many)));
        story.state.on_outcome(outcome, at(now));
        assert_eq!(story.reads(now + 500).len(), 0, "later");
    }
    story.reads(33_000);
    assert_eq!(story.gated(), ["a"]);
    assert!(
        story.told.iter().any(|event| event.message.contains("the pods cannot be sent")),
        "{:?}",
        story.told
    );
    assert!(!story.answer_all(100, 120_000).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec![], "100m"));
}

/// The round waits for the answer to a request that is repeated, and the repeated request for the round: one of both ends.
#[test]
fn a_release_in_doubt_of_a_pod_that_has_changed_keeps_no_round() {
    let mut story = Story::in_rounds();
    story.server.create_pod("first", 100, 0);
    let question = story.question(0);
    story.state.on_outcome(outcome(&question, price(100)), at(10));
    let (_, sent) = story.planned(10);
    let [release] = &sent[..] else { panic!("{sent:?}") };
    story.server.create_pod("second", 100, 0);
    for now in [500, 40_000] {
        assert_eq!(story.planned(now).0.len(), 0, "the release is under way");
    }
    let lost = story.server.outcome(&Action::Release(release.clone()), Fault::RequestLost);
    story.state.on_outcome(lost, at(40_010));
    assert_eq!(story.planned(40_015).0.len(), 0, "it may have been done");
    story.server.touch_pod("first");
    story.answer_all(100, 100_000);
    assert_eq!((story.gated(), story.server.used()), (vec![], "200m"));
}

/// It waits for its time, and the round that follows is none of its own.
#[test]
fn who_failed_is_asked_about_again_after_its_namespace_could_not_be_read() {
    let mut story = Story::in_rounds();
    story.server.create_pod("fails", 100, 0);
    let mut now = 0;
    for _ in 0..5 {
        now += 20_000;
        let question = story.question(now);
        story.state.on_outcome(outcome(&question, failure()), at(now));
    }
    story.server.create_pod("other", 100, 0);
    let reads = story.reads(now + 2_000);
    let [read] = &reads[..] else { panic!("{reads:?}") };
    let why = NotRead { text: "not read".into(), are_too_many: false };
    let unread = Outcome::RoundRead(read.namespace, read.round.number, Err(why));
    story.state.on_outcome(unread, at(now + 2_000));
    let asked = story.questions(now + 4_000);
    assert_eq!(names(&asked), ["other"], "the other one is not to be asked about yet");
    story.state.on_outcome(outcome(&asked[0], price(100)), at(now + 4_000));
    let asked = story.answer_all(100, now + 4_100);
    assert_eq!((asked.contains(&"fails".to_owned()), story.gated()), (false, vec!["fails"]), "{asked:?}");
    story.answer_all(100, now + 60_000);
    assert_eq!(story.gated(), [""; 0]);
}

/// The pods of a namespace are kept in memory until the last question of the round is answered.
#[test]
fn what_was_read_goes_with_the_round() {
    let mut story = Story::in_rounds();
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    let read = std::sync::Arc::downgrade(&question.round.as_ref().unwrap().pods);
    assert!(read.upgrade().is_some());
    story.state.on_outcome(outcome(&question, price(100)), at(10));
    story.questions(10);
    drop(question);
    assert!(read.upgrade().is_none());
}

/// A namespace is read only for a round that asks about a pod.
#[test]
fn where_no_pod_waits_a_change_reads_the_namespace_when_those_that_run_are_due() {
    let mut story = Story::in_rounds();
    for pod in ["runs", "ended"] {
        story.server.create_pod(pod, 100, 0);
    }
    story.answer_all(100, 0);
    story.server.finish_pod("ended");
    story.answer_all(100, 5_000);
    story.relabel("runs");
    let asked = story.questions(10_000);
    assert_eq!(names(&asked), ["runs"]);
    // The round takes 100 ms, so pods that run are asked about again after 900.
    story.state.on_outcome(outcome(&asked[0], price(100)), at(10_100));
    assert_eq!(story.questions(10_100).len(), 0);
    for n in 1..8 {
        story.relabel_as("ended", n);
        assert_eq!(story.reads(10_100 + n * 100).len(), 0, "{n}");
    }
    assert_eq!(story.reads(11_100).len(), 1);
}

/// A round passes over a pod whose content is not known, as after a release that was refused because the pod has changed.
#[test]
fn who_was_passed_over_by_a_round_goes_by_a_later_one() {
    let mut story = Story::in_rounds();
    story.server.create_pod("first", 100, 0);
    let question = story.question(0);
    story.state.on_outcome(outcome(&question, price(100)), at(10));
    let (_, sent) = story.planned(10);
    let [release] = &sent[..] else { panic!("{sent:?}") };
    story.server.create_pod("second", 100, 0);
    assert_eq!(story.planned(500).0.len(), 0, "the release is under way");
    story.server.touch_pod("first");
    let refused = story.server.outcome(&Action::Release(release.clone()), Fault::None);
    story.state.on_outcome(refused, at(510));
    let mut asked = Vec::new();
    // The watch is late: it does not show yet what the pod is now.
    for _ in 0..8 {
        for action in story.state.plan(at(510)) {
            match action {
                Action::Evaluate(question) => asked.push(*question),
                action => story.act(action, at(510)),
            }
        }
    }
    let [question] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(&*question.name, "second");
    story.state.on_outcome(outcome(question, price(0)), at(520));
    let round = question.round.as_ref().unwrap().number;
    let mut last = 0;
    for now in (520..3_000).step_by(20) {
        for question in story.questions(now) {
            if *question.name == *"first" {
                last = question.round.as_ref().unwrap().number;
            }
            story.state.on_outcome(outcome(&question, price(0)), at(now));
        }
    }
    assert_eq!(story.gated(), [""; 0]);
    assert!(
        last > round,
        "the state by which it was asked about does not show the other one: {last}, {round}"
    );
}
