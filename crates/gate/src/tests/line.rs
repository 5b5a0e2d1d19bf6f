//! Pods that run and stand in line to be asked about.

use super::evaluations::{outcome, price};
use super::evaluator::{config, content_of};
use super::stories::{Story, at};
use crate::Evaluate;

/// More pods than the gate asks about at a time.
const PODS: usize = 40;

impl Story {
    /// [`PODS`] pods run, for which Kubernetes counts 10m each, and then an evaluator is configured. Returns the first
    /// questions.
    fn crowd() -> (Self, Vec<Evaluate>) {
        let mut story = Self::led();
        story.server.set_hard(1000);
        for number in 0..PODS {
            story.server.create_pod(&format!("p{number:02}"), 10, 0);
        }
        story.run(at(0));
        assert_eq!(story.gated(), Vec::<&str>::new());
        story.evaluate_anew(0);
        let asked = story.questions(0);
        assert!(asked.len() < PODS, "{} stand in line", PODS - asked.len());
        (story, asked)
    }

    fn evaluate_anew(&mut self, now: u64) {
        self.state.follow_evaluators(Some(config()), at(now));
        for (_, pod) in self.server.pods() {
            self.state.apply_pod_of(pod, content_of(pod), at(now));
        }
    }

    /// Answers these questions and all that follow. Returns the number of answers.
    fn say_to_all(&mut self, asked: Vec<Evaluate>, milli_cpu: i128, now: u64) -> usize {
        let (mut asked, mut answered) = (asked, 0);
        while !asked.is_empty() {
            answered += asked.len();
            for question in asked {
                self.state.on_outcome(outcome(&question, price(milli_cpu)), at(now));
            }
            asked = self.questions(now);
        }
        answered
    }

    fn told_of_running(&self) -> Option<String> {
        let conditions = self.server.quota().unwrap()["status"]["conditions"].as_array()?;
        let told = conditions.iter().find(|condition| condition["type"] == "Evaluated")?;
        told["message"].as_str()?.split(" has no").next()?.split(" have no").next().map(str::to_owned)
    }
}

#[test]
fn each_is_asked_about_once_and_nothing_goes_before_the_last_is_answered() {
    let (mut story, asked) = Story::crowd();
    story.server.create_pod("waits", 10, 0);
    assert_eq!(story.questions(10).len(), 0, "all places are taken");
    let answered = story.say_to_all(asked, 20, 20);
    assert_eq!((answered, story.gated(), story.server.used()), (PODS + 1, vec![], "820m"));
    assert_eq!(story.questions(60_000).len(), 0);
}

#[test]
fn after_half_a_minute_they_keep_nothing_and_are_told_of_until_they_are_answered() {
    let (mut story, asked) = Story::crowd();
    story.questions(29_000);
    story.server.create_pod("waits", 10, 0);
    let (now, mut asked) = (29_500, asked);
    let first = asked.remove(0);
    story.state.on_outcome(outcome(&first, price(10)), at(now));
    let next = story.questions(now);
    let [waiting] = &next[..] else { panic!("{next:?}") };
    assert_eq!(&*waiting.name, "waits");
    story.state.on_outcome(outcome(waiting, price(20)), at(now));
    asked.extend(story.questions(now));
    assert_eq!((story.gated(), story.told_of_running()), (vec!["waits"], None));
    let next = story.questions(30_001);
    assert_eq!((story.gated(), story.server.used()), (vec![], "420m"), "as Kubernetes counts those in line");
    story.questions(41_000);
    assert_eq!(story.told_of_running().as_deref(), Some("39 pods that run (p01 is one)"));
    // A pod that has finished does not count.
    story.server.finish_pod("p39");
    let asked = asked.into_iter().chain(next).chain(story.questions(52_000)).collect();
    story.questions(62_500);
    assert_eq!(story.told_of_running().as_deref(), Some("38 pods that run (p01 is one)"));
    story.say_to_all(asked, 20, 63_000);
    story.questions(75_000);
    assert_eq!((story.told_of_running(), story.server.used()), (None, "790m"));
}

#[test]
fn of_those_that_stood_in_line_for_others_nothing_is_told() {
    let (mut story, old) = Story::crowd();
    story.questions(30_001);
    story.questions(41_000);
    assert!(story.told_of_running().is_some());
    story.evaluate_anew(42_000);
    assert_eq!(story.questions(42_000).len(), 0, "the places are taken until what was asked is answered");
    let of_old = old.len();
    assert_eq!(story.say_to_all(old, 10, 43_000), of_old + PODS);
    story.questions(54_000);
    assert_eq!((story.told_of_running(), story.server.used()), (None, "400m"));
}

/// The content of a pod that was answered changes while the line of its namespace is overdue.
#[test]
fn a_pod_that_changes_is_not_told_of_with_those_that_stood_for_long() {
    let (mut story, mut asked) = Story::crowd();
    let first = asked.remove(0);
    story.state.on_outcome(outcome(&first, price(10)), at(10));
    asked.extend(story.questions(10));
    story.questions(30_001);
    story.questions(41_000);
    let before = story.told_of_running();
    assert_eq!(before.as_deref(), Some("39 pods that run (p01 is one)"));
    story.relabel(&first.name);
    story.questions(42_000);
    story.questions(53_000);
    assert_eq!(story.told_of_running(), before);
    story.questions(72_001);
    story.questions(83_000);
    assert_eq!(story.told_of_running().as_deref(), Some("40 pods that run (p00 is one)"));
}
