//! A new leader, beside pods that run and of which it has no answer yet.

use super::evaluations::{failure, outcome, price};
use super::evaluator::config;
use super::stories::{Story, at};
use crate::Evaluate;

/// A new process that leads beside a pod that runs, of which its predecessor recorded 700m.
fn taken_over() -> (Story, Evaluate) {
    let mut story = Story::begin();
    story.state.follow_evaluators(Some(config()), at(0));
    story.server.set_hard(1000);
    story.server.scribble_status(700);
    story.server.create_pod("runs", 100, 0);
    story.server.ungate_pod("runs");
    story.see_all(at(0));
    story.state.lead(at(0));
    let question = story.question(0);
    (story, question)
}

#[test]
fn who_takes_over_decides_when_what_runs_is_answered() {
    let (mut story, runs) = taken_over();
    story.server.create_pod("waits", 100, 0);
    let waits = story.question(10);
    story.say(&waits, price(300), 20);
    assert_eq!(story.gated(), ["waits"]);
    story.say(&runs, price(700), 30);
    assert_eq!(story.gated(), Vec::<&str>::new());
}

/// Of the 700m that are recorded nobody knows which of them it takes.
#[test]
fn what_is_recorded_stays_in_flight_until_all_that_run_are_answered() {
    let (mut story, runs) = taken_over();
    story.say(&runs, failure(), 10);
    story.server.create_pod("waits", 100, 0);
    let question = story.question(20);
    assert_eq!(*question.name, *"waits");
    story.say(&question, price(400), 30);
    for second in 1..300 {
        for question in story.questions(second * 1_000) {
            assert_eq!(*question.name, *"runs");
            story.state.on_outcome(outcome(&question, failure()), at(second * 1_000));
        }
    }
    assert_eq!((story.gated(), story.server.used()), (vec!["waits"], "700m"));
    let mut answered = false;
    for second in 300..500 {
        for question in story.questions(second * 1_000) {
            answered = true;
            story.state.on_outcome(outcome(&question, price(500)), at(second * 1_000));
        }
    }
    assert!(answered);
    assert_eq!((story.gated(), story.server.used()), (vec![], "900m"));
}
