//! Evaluators that are asked about all pods before they are in force.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::evaluations::{failure, price};
use super::evaluator::{config, content_of};
use super::shadow::{seen, version_of};
use super::stories::{Story, at};
use crate::{Content, EvaluatorsConfig, Failed, OnFailure, Price, Said};

impl Story {
    /// Of two pods of 300m by the evaluator, one waits for room in 500m.
    fn with_one_that_waits() -> Self {
        let mut story = Self::evaluated(OnFailure::Hold);
        story.server.set_hard(500);
        for name in ["a", "b"] {
            story.server.create_pod(name, 100, 0);
            let question = story.question(0);
            story.say(&question, price(300), 10);
        }
        assert_eq!((story.gated(), story.server.used()), (vec!["b"], "300m"));
        story
    }

    fn expect(&mut self) -> (u32, Arc<EvaluatorsConfig>) {
        let next = Arc::new((*config()).clone());
        (self.state.expect_evaluators(Arc::clone(&next)).unwrap(), next)
    }

    /// The pod is read for the next evaluators, which answer this, if they are asked.
    fn read_for_next(&mut self, name: &str, number: u32, answer: Result<Price, Failed>) -> bool {
        let (_, pod) = self.server.pods().find(|(_, pod)| pod["metadata"]["name"] == name).unwrap();
        let content = Content { hash: content_of(pod), selected_by: 1, revision: number };
        let version = version_of(pod);
        let Some(ask) = self.state.see_for_next(&seen(pod), version, content) else { return false };
        let of = (version, number, ask.selected);
        self.state.say_for_next((ask.pod, &ask.uid), of, answer.map(Said::from));
        true
    }
}

#[test]
fn pods_are_charged_by_those_of_before_until_all_are_answered() {
    let mut story = Story::with_one_that_waits();
    let (number, next) = story.expect();
    assert!(story.read_for_next("a", number, price(200)) && story.read_for_next("b", number, price(200)));
    assert!(story.questions(100).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec!["b"], "300m"), "nothing is in force yet");
    story.state.follow_evaluators(Some(next), at(200));
    assert!(story.questions(200).is_empty(), "both are answered");
    assert_eq!((story.gated(), story.server.used()), (vec![], "400m"));
}

#[test]
fn a_pod_that_has_changed_since_it_was_read_is_asked_about() {
    let mut story = Story::with_one_that_waits();
    let (number, next) = story.expect();
    assert!(story.read_for_next("a", number, price(100)) && story.read_for_next("b", number, price(100)));
    story.relabel("a");
    let question = story.question(100);
    story.say(&question, price(300), 110);
    story.state.follow_evaluators(Some(next), at(200));
    assert!(story.questions(200).is_empty(), "what it is now was not seen by the evaluators of now");
    assert_eq!((story.gated(), story.server.used()), (vec!["b"], "300m"), "and nothing goes meanwhile");
    story.list_again(210);
    let question = story.question(220);
    assert_eq!(&*question.name, "a");
    story.say(&question, price(350), 230);
    assert_eq!((story.gated(), story.server.used()), (vec![], "450m"));
}

/// The list is a moment ahead of the watch, or behind it.
#[test]
fn what_is_read_of_another_version_says_nothing() {
    let mut story = Story::with_one_that_waits();
    let (number, _) = story.expect();
    story.server.touch_pod("a");
    assert!(!story.read_for_next("a", number, price(100)), "the watch has not come that far");
    let (_, before) = story.server.pods().find(|(_, pod)| pod["metadata"]["name"] == "a").unwrap();
    let (seen, version) = (seen(before), version_of(before));
    let content = Content { hash: content_of(before), selected_by: 1, revision: number };
    story.server.touch_pod("a");
    assert!(story.questions(100).is_empty());
    assert!(story.state.see_for_next(&seen, version, content).is_none(), "it is behind");
    assert!(story.read_for_next("a", number, price(100)));
}

#[test]
fn why_they_do_not_answer_is_known_when_they_are_in_force() {
    let mut story = Story::with_one_that_waits();
    let (number, next) = story.expect();
    assert!(story.read_for_next("a", number, price(100)) && story.read_for_next("b", number, failure()));
    story.state.follow_evaluators(Some(next), at(200));
    assert!(story.questions(200).is_empty(), "it was asked already");
    assert_eq!((story.gated(), story.server.used()), (vec!["b"], "100m"));
    let again = story.question(2_300);
    story.say(&again, failure(), 2_310);
    assert_eq!(story.questions(20_000).len(), 1, "it is tried again as after any failure");
    let told: Vec<&str> = story.told.iter().map(|told| &*told.message).collect();
    assert!(told.iter().any(|told| told.starts_with("held: sizes: did not answer in 1 s")), "{told:?}");
}

/// Its handle may be another pod's by then.
#[test]
fn what_was_said_of_a_pod_that_has_gone_is_forgotten() {
    let mut story = Story::with_one_that_waits();
    let (number, next) = story.expect();
    assert!(story.read_for_next("a", number, price(100)) && story.read_for_next("b", number, price(100)));
    story.server.delete_pod("a");
    assert!(story.questions(100).is_empty());
    assert_eq!((story.gated(), story.server.used()), (vec![], "300m"));
    story.server.create_pod("c", 100, 0);
    let question = story.question(110);
    story.say(&question, price(300), 120);
    story.state.follow_evaluators(Some(next), at(200));
    story.list_again(210);
    let questions = story.questions(220);
    let names: BTreeSet<&str> = questions.iter().map(|question| &*question.name).collect();
    // The release of b has made another version of it.
    assert_eq!(names, BTreeSet::from(["b", "c"]));
}

#[test]
fn others_in_force_meanwhile_end_what_was_prepared() {
    let mut story = Story::with_one_that_waits();
    let (number, next) = story.expect();
    assert!(story.read_for_next("a", number, price(100)) && story.read_for_next("b", number, price(100)));
    story.state.follow_evaluators(Some(config()), at(100));
    assert!(!story.state.expects(&next) && !story.read_for_next("a", number, price(100)));
    story.state.follow_evaluators(Some(next), at(200));
    story.list_again(210);
    assert_eq!(story.questions(220).len(), 2);
    assert_eq!((story.gated(), story.server.used()), (vec!["b"], "300m"));
}

/// The page and the watch show the same version, and the namespace has other labels in between.
#[test]
fn an_answer_of_others_than_were_asked_last_is_dropped() {
    let mut story = Story::with_one_that_waits();
    let (number, next) = story.expect();
    let (_, pod) = story.server.pods().find(|(_, pod)| pod["metadata"]["name"] == "a").unwrap();
    let content = Content { hash: content_of(pod), selected_by: 1, revision: number };
    let (seen, version) = (seen(pod), version_of(pod));
    let ask = story.state.see_for_next(&seen, version, content).unwrap();
    let said = |milli_cpu| price(milli_cpu).map(Said::from);
    story.state.say_for_next((ask.pod, &ask.uid), (version, number, ask.selected | 2), said(1));
    assert!(story.read_for_next("b", number, price(100)));
    story.state.follow_evaluators(Some(Arc::clone(&next)), at(200));
    assert_eq!(&*story.question(200).name, "a");
}

/// Rules of evaluators rest on what Kubernetes counts.
#[test]
fn nothing_is_prepared_while_pods_are_read_by_other_rules_of_kubernetes() {
    let mut story = Story::with_one_that_waits();
    let (number, next) = story.expect();
    assert!(story.read_for_next("a", number, price(100)));
    story.state.charge_by(sluice_engine::ChargeRules::for_minor(31));
    assert!(!story.state.expects(&next) && !story.read_for_next("b", number, price(100)));
    story.state.follow_evaluators(Some(config()), at(100));
    assert_eq!(story.state.expect_evaluators(Arc::clone(&next)), None);
    story.state.is_charged_by();
    assert!(story.state.expect_evaluators(next).is_some());
}
