//! Each evaluator has places of its own for questions: how fast another one answers is none of its business.

use std::collections::BTreeSet;

use super::evaluations::{failure, outcome, price};
use super::policies::two_apps;
use super::stories::{Story, at};
use crate::Evaluate;

fn of<'q>(questions: &'q [Evaluate], app: &str) -> Vec<&'q Evaluate> {
    questions.iter().filter(|question| question.name.starts_with(app)).collect()
}

#[test]
fn who_answers_slowly_takes_no_place_of_another() {
    let mut story = Story::asking(two_apps());
    for n in 0..50 {
        story.create_of("db", &format!("db-{n}"), 1);
    }
    let slow = story.questions(0);
    assert_eq!(slow.len(), 16, "no more than it can have");
    story.create_of("web", "web", 1);
    let question = story.question(10);
    assert_eq!(&*question.name, "web");
    story.say(&question, price(1), 20);
    assert!(!story.gated().contains(&"web"));
    // Nothing is forgotten: each that is answered has the next one asked.
    let mut asked: BTreeSet<String> = slow.iter().map(|question| question.name.to_string()).collect();
    let mut flying = slow;
    while let Some(question) = flying.pop() {
        story.state.on_outcome(outcome(&question, price(1)), at(200_000));
        for next in story.questions(200_000) {
            assert!(asked.insert(next.name.to_string()), "once each");
            flying.push(next);
        }
    }
    for now in (200_100..210_000).step_by(100) {
        assert!(story.questions(now).is_empty());
    }
    assert_eq!((asked.len(), story.gated()), (50, vec![]));
}

#[test]
fn who_takes_many_at_once_has_them_and_who_takes_few_has_some_ready() {
    let mut story = Story::asking(two_apps());
    story.state.limit_evaluators(&[32, 1]);
    for n in 0..100 {
        story.create_of("db", &format!("db-{n}"), 1);
        story.create_of("web", &format!("web-{n}"), 1);
    }
    let asked = story.questions(0);
    assert_eq!((of(&asked, "db").len(), of(&asked, "web").len()), (64, 16));
    story.state.limit_evaluators(&[8, 1]);
    for question in of(&asked, "db").into_iter().take(48) {
        story.state.on_outcome(outcome(question, price(1)), at(10));
    }
    assert!(story.questions(10).is_empty(), "it takes fewer now");
    story.state.on_outcome(outcome(of(&asked, "db")[48], price(1)), at(20));
    assert_eq!(story.questions(20).len(), 1);
}

#[test]
fn who_fails_slowly_takes_no_trial_of_another() {
    let mut story = Story::asking(two_apps());
    story.create_of("db", "db", 1);
    story.create_of("web", "web", 1);
    for question in story.questions(0) {
        story.state.on_outcome(outcome(&question, failure()), at(0));
    }
    let again = story.questions(2_000);
    assert_eq!((of(&again, "db").len(), of(&again, "web").len()), (1, 1), "one of each is tried");
}
