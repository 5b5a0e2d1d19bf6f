//! An evaluator that says something else each time that it is asked.

use super::evaluations::{outcome, price};
use super::stories::{Story, at};
use crate::{Action, OnFailure, Outcome};

/// What a pod was let go by is what it is charged: neither a second answer nor any update that it is not asked about moves
/// that, while it is recorded or later.
#[test]
fn a_charge_stays_what_was_answered_first() {
    let mut story = Story::evaluated(OnFailure::Hold);
    story.server.create_pod("a", 100, 0);
    let question = story.question(0);
    story.state.on_outcome(outcome(&question, price(600)), at(10));
    let Some(Action::Record(record)) = story.state.plan(at(10)).into_iter().next() else { panic!() };
    story.state.on_outcome(outcome(&question, price(1)), at(10));
    let answer = story.server.record(&record);
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid.clone(), answer), at(10));
    assert_eq!(story.questions(20).len(), 0);
    assert_eq!((story.gated(), story.server.used()), (vec![], "600m"));
    for n in 0..50 {
        story.server.touch_pod("a");
        story.state.on_outcome(outcome(&question, price(1)), at(100 + n));
        assert_eq!(story.questions(100 + n).len(), 0);
        assert_eq!(story.server.used(), "600m");
    }
}

/// Each content has its answer. No pod goes but into what the answers of now leave, and what runs is charged by them.
#[test]
fn what_goes_fits_by_the_answers_of_now() {
    let mut story = Story::evaluated(OnFailure::Hold);
    for (pod, milli_cpu) in [("a", 600), ("b", 500), ("c", 500)] {
        story.server.create_pod(pod, 100, 0);
        let question = story.question(0);
        story.say(&question, price(milli_cpu), 10);
    }
    assert_eq!((story.gated(), story.server.used()), (vec!["b", "c"], "600m"));
    let mut seen = Vec::new();
    for n in 0..6 {
        let now = 100 * (n + 1);
        story.relabel_as("a", n);
        let question = story.question(now);
        assert_eq!(*question.name, *"a");
        story.say(&question, price(if n % 2 == 0 { 100 } else { 600 }), now + 10);
        seen.push((story.gated().len(), story.server.used().to_owned()));
    }
    // By 100m one more fits, by 600m none: what runs stays, and the last one waits for ever.
    let by = |used: &str| (1, used.to_owned());
    let [low, high] = ["600m", "1100m"].map(by);
    assert_eq!(seen, [low.clone(), high.clone(), low.clone(), high.clone(), low, high]);
}
